// The schemas of all operators. Their kernels are registered where they are defined.
//
// SymInt, not int, wherever a compiled program may see another value in the next call: an int is baked in and
// recompiled for. Seeds cross as the two's complement of their 64 bits.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "chunked_noise/chunked_noise.h"
#include "ops/registration.h"

namespace chunked_noise {

const char* version() { return CHUNKED_NOISE_VERSION; }

bool ops::first_copy() {
  static const bool first = [] {
    const bool found = c10::Dispatcher::singleton().findOp({"chunked_noise::derive_chunk_seed", ""}).has_value();
    if (found) {
      TORCH_WARN("a second copy of libchunked_noise was loaded; the operators stay those of the first");
    }
    return !found;
  }();
  return first;
}

namespace {

// Unsigned integers cross in two's complement, so seeds and chunk indices from 2^63 on are negative here.
std::int64_t derive_chunk_seed_op(std::int64_t seed, std::int64_t chunk_index) {
  return static_cast<std::int64_t>(
      derive_chunk_seed(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(chunk_index)));
}

}  // namespace
}  // namespace chunked_noise

TORCH_LIBRARY_FRAGMENT(chunked_noise, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  library.def("derive_chunk_seed(int seed, int chunk_index) -> int", tags);
  library.impl("derive_chunk_seed", &chunked_noise::derive_chunk_seed_op);
  // A chunk that needs no padding is a view of self, so the results may share its memory.
  library.def("padded_chunk(Tensor(a) self, SymInt chunk_size, SymInt index) -> Tensor(a)", tags);
  library.def("padded_chunks(Tensor(a -> *) self, SymInt chunk_size) -> Tensor(a)[]", tags);
  library.def(
      "sample_chunked_noise(SymInt[] shape, *, SymInt seed, SymInt chunk_size, SymInt start, Device device, "
      "ScalarType dtype) -> Tensor",
      tags);
  library.def(
      "sample_chunked_noise.rows(SymInt[] shape, *, Tensor seed, SymInt chunk_size, Tensor start, Device device, "
      "ScalarType dtype) -> Tensor",
      tags);
  library.def(
      "gather_chunked_noise(Tensor positions, *, Tensor seeds, SymInt chunk_size, SymInt[] feature_shape, "
      "ScalarType dtype) -> Tensor",
      tags);
  // The operators that engines implement: self is (rows, positions, features...).
  library.def("fill_chunked_noise_(Tensor(a!) self, *, SymInt seed, SymInt chunk_size, SymInt start) -> ()", tags);
  library.def("fill_chunked_noise_.rows(Tensor(a!) self, *, Tensor seed, SymInt chunk_size, Tensor start) -> ()", tags);
}

// The factories, which are composites over fill_chunked_noise_, and the C++ functions over the operators.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <c10/core/TensorOptions.h>
#include <torch/library.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <utility>
#include <vector>

#include "chunked_noise/noise.h"
#include "ops/checks.h"
#include "ops/registration.h"

namespace chunked_noise {
namespace {

using FillOp = void(at::Tensor&, c10::SymInt, c10::SymInt, c10::SymInt);
using FillRowsOp = void(at::Tensor&, const at::Tensor&, c10::SymInt, const at::Tensor&);
using SampleOp = at::Tensor(c10::SymIntArrayRef, c10::SymInt, c10::SymInt, c10::SymInt, at::Device, at::ScalarType);
using SampleRowsOp = at::Tensor(c10::SymIntArrayRef, const at::Tensor&, c10::SymInt, const at::Tensor&, at::Device,
                                at::ScalarType);
using GatherOp = at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymIntArrayRef, at::ScalarType);

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

const c10::TypedOperatorHandle<FillOp>& fill_op() {
  static const auto op = find_op<FillOp>("chunked_noise::fill_chunked_noise_");
  return op;
}

const c10::TypedOperatorHandle<FillRowsOp>& fill_rows_op() {
  static const auto op = find_op<FillRowsOp>("chunked_noise::fill_chunked_noise_", "rows");
  return op;
}

void check_device(at::Device device) {
  static const auto empty = c10::Dispatcher::singleton().findSchemaOrThrow("aten::empty", "memory_format");
  const auto key = c10::computeDispatchKey(std::nullopt, std::nullopt, device);
  TORCH_CHECK_NOT_IMPLEMENTED(device.is_cpu() || empty.hasKernelForDispatchKey(key), "device ", device,
                              " is not available in this build of torch");
}

// An empty tensor for noise. Nobody else has seen it, so autograd need not hear of what is done to it.
at::Tensor empty_noise(c10::SymIntArrayRef shape, at::Device device, at::ScalarType dtype) {
  check_device(device);
  at::Tensor noise = at::empty_symint(shape, at::TensorOptions().device(device).dtype(dtype));
#if defined(__linux__)
  // Touching new memory in pages of 4 KiB takes longer than drawing the noise.
  constexpr std::uintptr_t huge_page = std::uintptr_t{2} << 20;
  if (noise.device().is_cpu() && !noise.unsafeGetTensorImpl()->is_python_dispatch() &&
      noise.storage().nbytes() >= 2 * huge_page) {
    const auto begin = reinterpret_cast<std::uintptr_t>(noise.mutable_data_ptr());
    const auto aligned = (begin + huge_page - 1) / huge_page * huge_page;
    madvise(reinterpret_cast<void*>(aligned), begin + noise.storage().nbytes() - aligned, MADV_HUGEPAGE);
  }
#endif
  return noise;
}

at::Tensor sample(c10::SymIntArrayRef shape, c10::SymInt seed, c10::SymInt chunk_size, c10::SymInt start,
                  at::Device device, at::ScalarType dtype) {
  ops::check_dtype(dtype);
  ops::check_shape(shape);
  ops::check_chunk_size(chunk_size);
  ops::check_range(shape, chunk_size, start, dtype);
  // All rows are equal: one is drawn and the others are the same memory.
  std::vector<c10::SymInt> drawn(shape.begin(), shape.end());
  drawn[0] = 1;
  at::AutoDispatchBelowADInplaceOrView guard;
  if (shape[0].maybe_as_int() == 0) {
    drawn[1] = 0;  // no rows, no memory
    std::vector<c10::SymInt> strides(shape.size(), 1);
    for (std::size_t i = shape.size() - 1; i > 1; --i) {
      strides[i - 1] = strides[i] * (shape[i].maybe_as_int() == 0 ? c10::SymInt(1) : shape[i]);
    }
    strides[0] = 0;
    return empty_noise(drawn, device, dtype).as_strided_symint(shape, strides);
  }
  at::Tensor noise = empty_noise(drawn, device, dtype);
  fill_op().call(noise, std::move(seed), std::move(chunk_size), std::move(start));
  return shape[0].maybe_as_int() == 1 ? noise : noise.expand_symint(shape);
}

at::Tensor sample_rows(c10::SymIntArrayRef shape, const at::Tensor& seed, c10::SymInt chunk_size,
                       const at::Tensor& start, at::Device device, at::ScalarType dtype) {
  ops::check_dtype(dtype);
  ops::check_shape(shape);
  ops::check_chunk_size(chunk_size);
  ops::check_range(shape, chunk_size, 0, dtype);
  ops::check_per_row(seed, shape[0], "seed");
  ops::check_per_row(start, shape[0], "start");
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor noise = empty_noise(shape, device, dtype);
  fill_rows_op().call(noise, seed, std::move(chunk_size), start);
  return noise;
}

at::Tensor gather(const at::Tensor& positions, const at::Tensor& seeds, c10::SymInt chunk_size,
                  c10::SymIntArrayRef feature_shape, at::ScalarType dtype) {
  TORCH_CHECK_VALUE(positions.dim() == 1, "positions must have 1 dimension, got shape ", positions.sym_sizes());
  ops::check_per_row(positions, positions.sym_size(0), "positions");
  ops::check_per_row(seeds, positions.sym_size(0), "seeds");
  // A token is a row of one position.
  std::vector<c10::SymInt> shape{positions.sym_size(0), 1};
  shape.insert(shape.end(), feature_shape.begin(), feature_shape.end());
  return sample_rows(shape, seeds, std::move(chunk_size), positions, positions.device(), dtype).squeeze(1);
}

}  // namespace

at::Tensor sample_chunked_noise(at::IntArrayRef shape, std::uint64_t seed, std::int64_t chunk_size, at::Device device,
                                at::ScalarType dtype, std::int64_t start) {
  static const auto op = find_op<SampleOp>("chunked_noise::sample_chunked_noise");
  const std::vector<c10::SymInt> sizes(shape.begin(), shape.end());
  return op.call(sizes, static_cast<std::int64_t>(seed), chunk_size, start, device, dtype);
}

at::Tensor sample_chunked_noise(at::IntArrayRef shape, const at::Tensor& seed, std::int64_t chunk_size,
                                at::Device device, at::ScalarType dtype, const at::Tensor& start) {
  static const auto op = find_op<SampleRowsOp>("chunked_noise::sample_chunked_noise", "rows");
  const std::vector<c10::SymInt> sizes(shape.begin(), shape.end());
  return op.call(sizes, seed, chunk_size, start, device, dtype);
}

at::Tensor gather_chunked_noise(const at::Tensor& positions, const at::Tensor& seeds, std::int64_t chunk_size,
                                at::IntArrayRef feature_shape, at::ScalarType dtype) {
  static const auto op = find_op<GatherOp>("chunked_noise::gather_chunked_noise");
  const std::vector<c10::SymInt> features(feature_shape.begin(), feature_shape.end());
  return op.call(positions, seeds, chunk_size, features, dtype);
}

void fill_chunked_noise_(at::Tensor out, std::uint64_t seed, std::int64_t chunk_size, std::int64_t start) {
  fill_op().call(out, static_cast<std::int64_t>(seed), chunk_size, start);
}

void fill_chunked_noise_(at::Tensor out, const at::Tensor& seed, std::int64_t chunk_size, const at::Tensor& start) {
  fill_rows_op().call(out, seed, chunk_size, start);
}

}  // namespace chunked_noise

TORCH_LIBRARY_IMPL(chunked_noise, CompositeExplicitAutograd, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("sample_chunked_noise", &chunked_noise::sample);
  library.impl("sample_chunked_noise.rows", &chunked_noise::sample_rows);
  library.impl("gather_chunked_noise", &chunked_noise::gather);
}

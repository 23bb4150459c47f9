// The seam between the operators and the engines.
//
// An engine is a function that fills a contiguous tensor, which is not empty, with the noise of a request. The
// operators check arguments once and hand every engine the same request.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/runs.h"

namespace chunked_noise {

// What a tensor (runs.count, runs.length, features...) is to be filled with; every argument is already checked.
struct Request {
  Runs runs;
  // The arrays behind runs.seed and runs.start where these differ by row, else undefined: int64, contiguous, (count,).
  // A seed is the two's complement of its 64 bits.
  at::Tensor seeds;
  at::Tensor starts;

  // The same request with its arrays on `device`, and `runs` reading them there.
  Request to(at::Device device) const;
};

using Engine = void(const at::Tensor& out, const Request& request);

namespace ops {

// The kernels of fill_chunked_noise_ and its overload `rows`, over an engine: one registration a dispatch key.
void fill(Engine* engine, at::Tensor& self, std::int64_t seed, std::int64_t chunk_size, std::int64_t start);
void fill_rows(Engine* engine, at::Tensor& self, const at::Tensor& seed, std::int64_t chunk_size,
               const at::Tensor& start);

template <Engine* engine>
void fill_kernel(at::Tensor& self, std::int64_t seed, std::int64_t chunk_size, std::int64_t start) {
  fill(engine, self, seed, chunk_size, start);
}

template <Engine* engine>
void fill_rows_kernel(at::Tensor& self, const at::Tensor& seed, std::int64_t chunk_size, const at::Tensor& start) {
  fill_rows(engine, self, seed, chunk_size, start);
}

// Registers `engine` in a TORCH_LIBRARY_IMPL block.
template <Engine* engine, class Library>
void register_engine(Library& library) {
  library.impl("fill_chunked_noise_", &fill_kernel<engine>);
  library.impl("fill_chunked_noise_.rows", &fill_rows_kernel<engine>);
}

}  // namespace ops
}  // namespace chunked_noise

// Standard normal noise whose values at a position depend only on the seed and on the position's chunk.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

#include "chunked_noise/export.h"

namespace chunked_noise {

// Samples noise of `shape` (batch, sequence, features...) for positions start, start + 1, ... of the noise of `seed`.
//
// Chunk k, the positions [k * chunk_size, (k + 1) * chunk_size), holds the values that
// torch::randn({1, chunk_size, features...}) draws from a fresh generator of `device` seeded with
// derive_chunk_seed(seed, k), bit for bit. All batch rows are the same memory (stride 0): call contiguous() for rows
// that can be written. No global generator is read or moved.
//
// Throws c10::ValueError if chunk_size is not positive, start is negative, shape has fewer than two dimensions or a
// negative one, or positions or chunk elements do not fit 64 bits; c10::TypeError if dtype has no normal distribution.
CHUNKED_NOISE_API at::Tensor sample_chunked_noise(at::IntArrayRef shape, std::uint64_t seed, std::int64_t chunk_size,
                                                  at::Device device, at::ScalarType dtype, std::int64_t start = 0);

// The same with a seed and a start for every row: row r equals a call of batch 1 with seed[r] and start[r]. Both are
// integer tensors of shape (batch,), or () for one value that serves all rows; a seed is the two's complement of its 64
// bits. The rows are separate memory. On a CPU a negative start is a c10::ValueError; elsewhere nobody looks.
CHUNKED_NOISE_API at::Tensor sample_chunked_noise(at::IntArrayRef shape, const at::Tensor& seed,
                                                  std::int64_t chunk_size, at::Device device, at::ScalarType dtype,
                                                  const at::Tensor& start);

// One noise vector for each token of a flat batch: row i, of shape feature_shape, is the noise at positions[i] of
// seeds[i]. Positions have shape (tokens,); seeds too, or () for one seed. The result is on the device of positions.
CHUNKED_NOISE_API at::Tensor gather_chunked_noise(const at::Tensor& positions, const at::Tensor& seeds,
                                                  std::int64_t chunk_size, at::IntArrayRef feature_shape,
                                                  at::ScalarType dtype);

// The same into `out` (batch, sequence, features...), whatever its strides. Throws c10::ValueError, and writes nothing,
// if it overlaps itself.
CHUNKED_NOISE_API void fill_chunked_noise_(at::Tensor out, std::uint64_t seed, std::int64_t chunk_size,
                                           std::int64_t start = 0);
CHUNKED_NOISE_API void fill_chunked_noise_(at::Tensor out, const at::Tensor& seed, std::int64_t chunk_size,
                                           const at::Tensor& start);

}  // namespace chunked_noise

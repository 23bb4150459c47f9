// The engine for NVIDIA GPUs: every request is one launch, whatever its number of chunks and runs, and can be captured
// in a CUDA graph. Replayed, a graph gives the same values for a seed and start that are numbers, and the values for
// the current contents of tensors of seeds and starts.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "ops/engine.h"

namespace chunked_noise::cuda {

// Works on the current stream of the tensor's device.
//
// The first call for a dtype on a device compares this engine with ATen, bit for bit; should they differ, it warns and
// ATen serves from then on. ATen also serves chunks that are too large for its 32-bit indexing. A graph capture allows
// neither the comparison nor ATen's generators: there both are errors.
void fill(const at::Tensor& out, const Request& request);

// Makes the comparisons of all dtypes now, so that the first call may be a captured one.
void warm_up(at::Device device);

// What the comparison found, or nothing where there was none yet.
std::optional<bool> verified(at::Device device, at::ScalarType dtype);

}  // namespace chunked_noise::cuda

// The engine for CPU tensors: vectorised kernels where their bits are known to be ATen's, else the engine `aten`.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "cpu/kernels.h"
#include "ops/engine.h"

namespace chunked_noise::cpu {

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

// Kernels that have to prove themselves: the first use of a dtype compares them with ATen. On a difference a warning
// names it, and `aten` serves that dtype from then on.
class CheckedKernels {
 public:
  explicit CheckedKernels(const Kernels& kernels) : kernels_(kernels) {}

  // Whether the kernels serve `dtype`.
  bool serve(at::ScalarType dtype);

  void fill(const at::Tensor& out, const Request& request);

 private:
  enum class Verdict : unsigned char { unknown, equal, different };

  Kernels kernels_;
  // By dtype. No lock: threads that check at the same time come to the same verdict, and a fork cannot leave one held.
  std::array<std::atomic<Verdict>, static_cast<std::size_t>(at::ScalarType::NumOptions)> verdicts_{};
};

#endif

void fill(const at::Tensor& out, const Request& request);

}  // namespace chunked_noise::cpu

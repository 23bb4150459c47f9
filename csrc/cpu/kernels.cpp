#include "cpu/kernels.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

namespace chunked_noise::cpu {

Kernels avx2_kernels(HalfArithmetic half_arithmetic);
Kernels avx512_kernels(HalfArithmetic half_arithmetic);

Kernels select_kernels(InstructionSet instruction_set, HalfArithmetic half_arithmetic) {
  return instruction_set == InstructionSet::avx512 ? avx512_kernels(half_arithmetic) : avx2_kernels(half_arithmetic);
}

}  // namespace chunked_noise::cpu

#endif

// The kernels for ATen's capability AVX2.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/runs.h"
#include "cpu/kernels.h"

// From here to the end: templates are instantiated there.
#pragma GCC target("avx2,fma,f16c")

#include "cpu/simd_avx2.h"

namespace chunked_noise::cpu {
namespace {
using WidestSimd = Simd<8>;
}  // namespace
}  // namespace chunked_noise::cpu

#include "cpu/normal_kernel.h"

namespace chunked_noise::cpu {

Kernels avx2_kernels(HalfArithmetic half_arithmetic) { return make_kernels(half_arithmetic); }

}  // namespace chunked_noise::cpu

#endif

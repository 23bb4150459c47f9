// What AVX-512 adds to simd_avx2.h.
#pragma once

#include <immintrin.h>

#include "cpu/simd_avx2.h"

namespace chunked_noise::cpu {
namespace {

template <>
struct Simd<16> : SimdTypes<16> {
  [[gnu::always_inline]] static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static Float sqrt(Float a) { return _mm512_maskz_sqrt_ps(all, a); }
  [[gnu::always_inline]] static Half to_float16(Float a) {
    return reinterpret_cast<Half>(_mm512_maskz_cvtps_ph(all, a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  template <class Vector>
  [[gnu::always_inline]] static void exchange_halves(Vector& a, Vector& b) {
    const auto x = reinterpret_cast<__m512>(a);
    const auto y = reinterpret_cast<__m512>(b);
    const auto lows = _mm512_maskz_shuffle_f32x4(all, x, y, 0x44);
    const auto highs = _mm512_maskz_shuffle_f32x4(all, x, y, 0xEE);
    a = reinterpret_cast<Vector>(lows);
    b = reinterpret_cast<Vector>(highs);
  }

 private:
  // The plain intrinsics do the same, but GCC 12 says of them that they use uninitialized values (bug 105593).
  static constexpr __mmask16 all = 0xFFFF;
};

}  // namespace
}  // namespace chunked_noise::cpu

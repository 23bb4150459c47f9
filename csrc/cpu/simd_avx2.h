// Vectors of 32-bit words and floats in the compiler's vector types, and the few operations that its operators do not
// express. Included by the kernels of one instruction set, see normal_kernel.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace chunked_noise::cpu {
namespace {

template <int width_>
struct SimdTypes {
  static constexpr int width = width_;
  typedef std::uint32_t Word __attribute__((vector_size(4 * width_)));
  typedef std::int32_t Integer __attribute__((vector_size(4 * width_)));
  typedef float Float __attribute__((vector_size(4 * width_)));
  typedef std::uint16_t Half __attribute__((vector_size(2 * width_)));
};

template <int width_>
struct Simd;

template <>
struct Simd<8> : SimdTypes<8> {
  [[gnu::always_inline]] static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  [[gnu::always_inline]] static Float sqrt(Float a) { return _mm256_sqrt_ps(a); }
  [[gnu::always_inline]] static Half to_float16(Float a) {
    return reinterpret_cast<Half>(_mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }

  // Two vectors hold whole blocks of 16 elements. This puts the first halves of all blocks into `a` and the second ones
  // into `b`, or back; here, of one block, they are there already.
  template <class Vector>
  [[gnu::always_inline]] static void exchange_halves(Vector&, Vector&) {}
};

// Any address, any type of element.
template <class Vector>
[[gnu::always_inline]] inline Vector load(const void* address) {
  Vector vector;
  __builtin_memcpy(&vector, address, sizeof(Vector));
  return vector;
}

template <class Vector>
[[gnu::always_inline]] inline void store(void* address, Vector vector) {
  __builtin_memcpy(address, &vector, sizeof(Vector));
}

}  // namespace
}  // namespace chunked_noise::cpu

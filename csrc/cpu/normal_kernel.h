// The kernels of one instruction set. A kernels_*.cpp includes all headers that it shares with other files, then
// switches the compiler to its instruction set up to its end, then includes this one. Everything here has internal
// linkage, and nothing here may instantiate a template of another library, so that no code that was compiled for one
// instruction set can end up in a program's other parts.
//
// G. Box, M. Muller, "A note on the generation of random normal deviates", 1958: with uniform u1 in (0, 1] and u2 in
// [0, 1), r cos t and r sin t are independent normal deviates for r = sqrt(-2 log u1), t = 2 pi u2. ATen draws 16
// uniforms at a time, a block: elements j and j + 8 of a block come from its uniforms j (1 - u1) and j + 8 (u2). A draw
// of fewer than 16 elements has a path of its own, in double.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/runs.h"
#include "cpu/generator.h"
#include "cpu/kernels.h"
#include "cpu/simd_avx2.h"

namespace chunked_noise::cpu {
namespace {

constexpr int block_numel = 16;
constexpr double two_pi = 6.283185307179586476925286766559;

// Where ATen finds the words of a draw of scalar_t that it computes in compute_t.
template <class scalar_t, class compute_t>
struct BlockLayout {
  static constexpr int words_per_block = block_numel * (std::is_same_v<compute_t, double> ? 2 : 1);

  // When a draw is not made of whole blocks, one more block, whose words start here, is drawn for its last 16 elements.
  // By then all uniforms have been drawn, or, when they go through a buffer of another type, those of whole blocks.
  static constexpr std::int64_t tail_word(std::int64_t draw_numel) {
    const bool buffered = !std::is_same_v<scalar_t, compute_t>;
    return (buffered ? draw_numel / block_numel * block_numel : draw_numel) * (words_per_block / block_numel);
  }
};

// By Horner's rule, from the highest coefficient on.
template <class S, class... Coefficients>
[[gnu::always_inline]] inline typename S::Float polynomial(typename S::Float x, float highest, Coefficients... others) {
  const typename S::Float zero{};
  typename S::Float y = zero + highest;
  ((y = S::fma(y, x, zero + others)), ...);
  return y;
}

// The logarithm of x in [2^-24, 1], by the Cephes polynomial in the operations of ATen's avx_mathfun.h (J. Pommier) as
// GCC contracts them there. Which products are fused into sums decides the last bit, so that is spelt out.
template <class S>
[[gnu::always_inline]] inline typename S::Float log(typename S::Float x) {
  using Float = typename S::Float;
  using Integer = typename S::Integer;
  // x = 2^exponent * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)).
  const Integer bits = reinterpret_cast<Integer>(x);
  const Integer sqrt_half_bits = Integer{} + 0x3F3504F3;
  const Integer exponent = (bits - sqrt_half_bits) >> 23;
  const Float f = reinterpret_cast<Float>(bits - (exponent << 23)) - 1.0f;
  const Float e = __builtin_convertvector(exponent, Float);

  const Float z = f * f;
  Float y = polynomial<S>(f, 7.0376836292E-2f, -1.1514610310E-1f, 1.1676998740E-1f, -1.2420140846E-1f, 1.4249322787E-1f,
                          -1.6668057665E-1f, 2.0000714765E-1f, -2.4999993993E-1f, 3.3333331174E-1f);
  y = S::fma(y * f, z, e * -2.12194440e-4f);
  y = S::fma(z, Float{} - 0.5f, y);
  return S::fma(e, Float{} + 0.693359375f, f + y);
}

template <class Float>
struct SinCos {
  Float sin;
  Float cos;
};

// The sine and cosine of x >= 0, from the same sources in the same way.
template <class S>
[[gnu::always_inline]] inline SinCos<typename S::Float> sincos(typename S::Float x) {
  using Float = typename S::Float;
  using Integer = typename S::Integer;
  // x reduced to [-pi/4, pi/4] by an even number of octants; pi/4 is subtracted in three parts.
  const Integer octant = (__builtin_convertvector(x * 1.27323954473516f, Integer) + 1) & ~1;
  const Float y = __builtin_convertvector(octant, Float);
  x = S::fma(y, Float{} - 0.78515625f, x);
  x = S::fma(y, Float{} - 2.4187564849853515625e-4f, x);
  x = S::fma(y, Float{} - 3.77489497744594108e-8f, x);

  const Float z = x * x;
  Float c = polynomial<S>(z, 2.443315711809948E-005f, -1.388731625493765E-003f, 4.166664568298827E-002f);
  c = S::fma(c * z, z, z * -0.5f) + 1.0f;
  Float s = polynomial<S>(z, -1.9515295891E-4f, 8.3321608736E-3f, -1.6666654611E-1f);
  s = S::fma(s * z, x, x);

  const Integer swapped = (octant & 2) != 0;
  const Integer sin_sign = (octant & 4) << 29;
  const Integer cos_sign = (~(octant - 2) & 4) << 29;
  return {reinterpret_cast<Float>(reinterpret_cast<Integer>(swapped ? c : s) ^ sin_sign),
          reinterpret_cast<Float>(reinterpret_cast<Integer>(swapped ? s : c) ^ cos_sign)};
}

template <class S>
[[gnu::always_inline]] inline void store_as(float* out, typename S::Float values) {
  store(out, values);
}

template <class S>
[[gnu::always_inline]] inline void store_as(c10::Half* out, typename S::Float values) {
  store(out, S::to_float16(values));
}

// Rounds to nearest, ties to even; the values are finite.
template <class S>
[[gnu::always_inline]] inline void store_as(c10::BFloat16* out, typename S::Float values) {
  const auto bits = reinterpret_cast<typename S::Word>(values);
  store(out, __builtin_convertvector((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16, typename S::Half));
}

// Blocks of scalar_t computed in float by vector instructions.
template <class scalar_t>
class VectorBlocks : public BlockLayout<scalar_t, float> {
 public:
  using Scalar = scalar_t;

  explicit VectorBlocks(double stdv) : stdv_(static_cast<float>(stdv)) {}

  // Transforms the state words of `count` blocks.
  void operator()(const std::uint32_t* words, std::int64_t count, scalar_t* out) const {
    constexpr int blocks = WidestSimd::width / 8;
    for (; count >= blocks; count -= blocks, words += blocks * block_numel, out += blocks * block_numel) {
      transform<WidestSimd>(words, out);
    }
    if (count > 0) {
      transform<Simd<8>>(words, out);
    }
  }

 private:
  // Transforms as many blocks as two vectors hold.
  template <class S>
  [[gnu::always_inline]] void transform(const std::uint32_t* words, scalar_t* out) const {
    using Float = typename S::Float;
    typename S::Word first = load<typename S::Word>(words);
    typename S::Word second = load<typename S::Word>(words + S::width);
    S::exchange_halves(first, second);
    const Float u1 = S::fma(uniform<S>(first), Float{} - 0x1p-24f, Float{} + 1.0f);  // exact
    const Float radius = S::sqrt(log<S>(u1) * -2.0f);
    const auto [sin, cos] = sincos<S>(uniform<S>(second) * (static_cast<float>(two_pi) * 0x1p-24f));
    const Float zero{};
    Float low = S::fma(radius * cos, zero + stdv_, zero);  // adding zero, the mean, makes +0 of -0
    Float high = S::fma(radius * sin, zero + stdv_, zero);
    S::exchange_halves(low, high);
    store_as<S>(out, low);
    store_as<S>(out + S::width, high);
  }

  // A uniform times 2^24.
  template <class S>
  [[gnu::always_inline]] static typename S::Float uniform(typename S::Word word) {
    const auto bits = mt19937::temper(word) & 0xFFFFFFu;
    return __builtin_convertvector(reinterpret_cast<typename S::Integer>(bits), typename S::Float);
  }

  float stdv_;
};

// The uniform in [0, 1) that ATen makes of as many bits as real_t has digits: of two outputs for double, otherwise one.
template <class real_t>
real_t uniform(const std::uint32_t* outputs) {
  constexpr int digits = std::numeric_limits<real_t>::digits;
  constexpr std::uint64_t values = std::uint64_t{1} << digits;
  if constexpr (std::is_same_v<real_t, double>) {
    const std::uint64_t bits = std::uint64_t{outputs[0]} << 32 | outputs[1];
    return static_cast<double>(static_cast<std::int64_t>(bits & (values - 1))) * (1.0 / values);
  } else {
    const std::uint64_t bits = outputs[0] & (values - 1);
    return static_cast<real_t>(static_cast<float>(static_cast<std::int64_t>(bits)) * (1.0f / values));
  }
}

// Makes outputs of a multiple of 8 state words.
template <int count>
void temper(const std::uint32_t* words, std::uint32_t (&outputs)[count]) {
  using Word = Simd<8>::Word;
  static_assert(count % 8 == 0);
  for (int i = 0; i < count; i += 8) {
    store(outputs + i, mt19937::temper(load<Word>(words + i)));
  }
}

// Blocks of scalar_t computed in compute_t by the C library that the process runs on, as ATen does.
template <class scalar_t, class compute_t>
class LibmBlocks : public BlockLayout<scalar_t, compute_t> {
 public:
  using Scalar = scalar_t;

  explicit LibmBlocks(double stdv) : stdv_(static_cast<compute_t>(static_cast<scalar_t>(stdv))) {}

  void operator()(const std::uint32_t* words, std::int64_t count, scalar_t* out) const {
    constexpr int words_per_uniform = LibmBlocks::words_per_block / block_numel;
    const compute_t zero = 0;
    for (; count > 0; --count, words += LibmBlocks::words_per_block, out += block_numel) {
      std::uint32_t outputs[LibmBlocks::words_per_block];
      temper(words, outputs);
      for (int j = 0; j < 8; ++j) {
        const compute_t u1 = static_cast<compute_t>(1) - uniform<compute_t>(outputs + words_per_uniform * j);
        const compute_t u2 = uniform<compute_t>(outputs + words_per_uniform * (j + 8));
        const compute_t log_u1 = static_cast<compute_t>(std::log(static_cast<Libm>(u1)));
        const compute_t square = static_cast<compute_t>(-2) * log_u1;
        const compute_t radius = static_cast<compute_t>(std::sqrt(static_cast<Libm>(square)));
        const Libm angle = static_cast<Libm>(static_cast<compute_t>(two_pi * static_cast<double>(u2)));
        out[j] = static_cast<scalar_t>(radius * static_cast<compute_t>(std::cos(angle)) * stdv_ + zero);
        out[j + 8] = static_cast<scalar_t>(radius * static_cast<compute_t>(std::sin(angle)) * stdv_ + zero);
      }
    }
  }

 private:
  // A half type's functions are float's, rounded.
  using Libm = std::conditional_t<std::is_same_v<compute_t, double>, double, float>;

  compute_t stdv_;
};

// Elements [begin, end) of the blocks whose words start at `first_word`.
template <class Blocks>
void fill_blocks(Generator& generator, const Blocks& blocks, std::int64_t first_word, std::int64_t begin,
                 std::int64_t end, typename Blocks::Scalar* out) {
  while (begin < end) {
    const std::int64_t word = first_word + begin / block_numel * Blocks::words_per_block;
    const std::uint32_t* words = generator.at(word);
    const std::int64_t here = generator.available(word) / Blocks::words_per_block;
    const std::int64_t wanted = begin % block_numel == 0 ? (end - begin) / block_numel : 0;
    const std::int64_t whole = here < wanted ? here : wanted;
    if (whole > 0) {
      blocks(words, whole, out);
      begin += whole * block_numel;
      out += whole * block_numel;
    } else {
      // A block of which a part is wanted, or whose words the generator does not hold all at once.
      std::uint32_t copy[Blocks::words_per_block];
      typename Blocks::Scalar values[block_numel];
      for (int i = 0; i < Blocks::words_per_block; ++i) {
        copy[i] = *generator.at(word + i);
      }
      blocks(copy, 1, values);
      for (std::int64_t i = begin % block_numel; i < block_numel && begin < end; ++i) {
        *out++ = values[i];
        ++begin;
      }
    }
  }
}

// A draw of fewer than 16 elements: a pair of elements from a pair of uniforms at a time, in double.
template <class scalar_t>
void fill_small_draw(Generator& generator, double stdv, std::int64_t begin, std::int64_t end, scalar_t* out) {
  constexpr int words_per_pair = 4;
  for (std::int64_t pair = begin / 2; pair * 2 < end; ++pair) {
    const std::uint32_t* words = generator.at(pair * words_per_pair);
    std::uint32_t outputs[words_per_pair];
    for (int i = 0; i < words_per_pair; ++i) {
      outputs[i] = mt19937::temper(words[i]);
    }
    const double radius = std::sqrt(-2.0 * std::log1p(-uniform<double>(outputs + 2)));
    const double angle = two_pi * uniform<double>(outputs);
    const double values[] = {radius * std::cos(angle), radius * std::sin(angle)};
    for (std::int64_t element = pair * 2; element < pair * 2 + 2; ++element) {
      if (begin <= element && element < end) {
        out[element - begin] = static_cast<scalar_t>(values[element % 2] * stdv + 0.0);
      }
    }
  }
}

// The first word that a segment needs.
template <class Blocks>
std::int64_t words_begin(const Segment& segment, std::int64_t draw_numel) {
  if (draw_numel < block_numel) {
    return segment.begin / 2 * 4;
  }
  if (draw_numel % block_numel != 0 && segment.begin >= draw_numel - block_numel) {
    return Blocks::tail_word(draw_numel);
  }
  return segment.begin / block_numel * Blocks::words_per_block;
}

// One past the last word that a segment needs.
template <class Blocks>
std::int64_t words_end(const Segment& segment, std::int64_t draw_numel) {
  if (draw_numel < block_numel) {
    return (segment.end + 1) / 2 * 4;
  }
  if (draw_numel % block_numel != 0 && segment.end > draw_numel - block_numel) {
    return Blocks::tail_word(draw_numel) + Blocks::words_per_block;
  }
  return (segment.end + block_numel - 1) / block_numel * Blocks::words_per_block;
}

template <class Blocks>
void fill_segment(Generator& generator, const Segment& segment, std::int64_t draw_numel, double stdv,
                  typename Blocks::Scalar* out) {
  if (draw_numel < block_numel) {
    fill_small_draw(generator, stdv, segment.begin, segment.end, out);
    return;
  }
  const Blocks blocks(stdv);
  const std::int64_t tail = draw_numel % block_numel == 0 ? draw_numel : draw_numel - block_numel;
  const std::int64_t body_end = segment.end < tail ? segment.end : tail;
  fill_blocks(generator, blocks, 0, segment.begin, body_end, out);
  const std::int64_t tail_begin = segment.begin > tail ? segment.begin : tail;
  if (tail_begin < segment.end) {
    fill_blocks(generator, blocks, Blocks::tail_word(draw_numel), tail_begin - tail, segment.end - tail,
                out + (tail_begin - segment.begin));
  }
}

template <class Blocks>
void fill_segments(const Segment* segments, int count, std::int64_t draw_numel, double stdv,
                   typename Blocks::Scalar* out) {
  std::int64_t words = 0;
  std::uint32_t seeds[max_segments] = {};
  for (int i = 0; i < count; ++i) {
    const std::int64_t end = words_end<Blocks>(segments[i], draw_numel);
    words = words < end ? end : words;
    seeds[i] = static_cast<std::uint32_t>(segments[i].chunk_seed);
  }
  words = (words + Generator::word_multiple - 1) / Generator::word_multiple * Generator::word_multiple;
  const int start_words = words < mt19937::state_words ? static_cast<int>(words) : mt19937::state_words;

  Generator generators[max_segments];
  if (count == 1) {
    start_generator(seeds[0], start_words, generators[0]);
  } else if (count <= 8) {
    start_generators<1>(seeds, start_words, generators);
  } else if (count <= 16) {
    start_generators<2>(seeds, start_words, generators);
  } else {
    start_generators<max_segments / 8>(seeds, start_words, generators);
  }
  // Segments of one draw that follow each other in its order, as tokens of one request do, share a generator's walk.
  int generator = 0;
  for (int i = 0; i < count; ++i) {
    typename Blocks::Scalar* const destination = out + segments[i].destination;
    const bool same_draw = i > 0 && seeds[i] == seeds[i - 1];
    if (same_draw && segments[i].begin == segments[i - 1].begin && segments[i].end == segments[i - 1].end) {
      const auto bytes = static_cast<std::size_t>(segments[i].end - segments[i].begin) * sizeof(*out);
      __builtin_memcpy(destination, out + segments[i - 1].destination, bytes);
      continue;
    }
    if (!same_draw || !generators[generator].holds(words_begin<Blocks>(segments[i], draw_numel))) {
      generator = i;
    }
    fill_segment<Blocks>(generators[generator], segments[i], draw_numel, stdv, destination);
  }
}

template <class Half>
FillSegments<Half> half_kernel(HalfArithmetic arithmetic) {
  switch (arithmetic) {
    case HalfArithmetic::rounded:
      return fill_segments<LibmBlocks<Half, Half>>;
    case HalfArithmetic::float_libm:
      return fill_segments<LibmBlocks<Half, float>>;
    case HalfArithmetic::float_vector:
      break;
  }
  return fill_segments<VectorBlocks<Half>>;
}

void transform(const std::uint32_t* words, std::int64_t blocks, double stdv, float* out) {
  const VectorBlocks<float> transform_blocks(stdv);
  transform_blocks(words, blocks, out);
}

Kernels make_kernels(HalfArithmetic arithmetic) {
  return {fill_segments<VectorBlocks<float>>, fill_segments<LibmBlocks<double, double>>,
          half_kernel<c10::BFloat16>(arithmetic), half_kernel<c10::Half>(arithmetic), transform};
}

}  // namespace
}  // namespace chunked_noise::cpu

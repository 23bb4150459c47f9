// MT19937 generators in vector registers. Included by the kernels of one instruction set, see normal_kernel.h.
#pragma once

#include <cstdint>

#include "core/mt19937.h"
#include "cpu/simd_avx2.h"

namespace chunked_noise::cpu {
namespace {

// One generator: 624 consecutive words of its stream. Words are counted from the first output on.
class Generator {
 public:
  // To be filled with the first seed_words(words) words of a seed before start(words).
  std::uint32_t* state() { return state_; }

  // What start(words) reads: output i is made of seed words i, i + 1 and i + 397.
  static int seed_words(int words) {
    const int needed = words + mt19937::far_word;
    return needed < mt19937::state_words ? needed : mt19937::state_words;
  }

  // Readies the first `words` (a multiple of word_multiple) outputs. A generator that goes on needs all 624.
  void start(int words) {
    first_word_ = 0;
    twist(words);
  }
  static constexpr int word_multiple = 16;

  // The words from `word` on, not yet tempered, of which available(word) are there. Words before
  // them are gone, as holds(word) tells.
  const std::uint32_t* at(std::int64_t word) {
    while (available(word) <= 0) {
      twist(mt19937::state_words);
      first_word_ += mt19937::state_words;
    }
    return state_ + (word - first_word_);
  }
  bool holds(std::int64_t word) const { return word >= first_word_; }
  std::int64_t available(std::int64_t word) const { return first_word_ + mt19937::state_words - word; }

 private:
  using Word = WidestSimd::Word;
  static constexpr int width = WidestSimd::width;

  // Replaces the first `words` words of the state by those 624 further on. The words after the last old one are the
  // first new ones: with a copy of these behind the state every step is a whole vector.
  void twist(int words) {
    constexpr int near_word = mt19937::state_words - mt19937::far_word;
    constexpr int far_is_old = (near_word + width - 1) / width * width;
    for (int word = 0; word < word_multiple; word += width) {
      step(word, word + mt19937::far_word);
      store(state_ + mt19937::state_words + word, load<Word>(state_ + word));
    }
    const int old_end = words < far_is_old ? words : far_is_old;
#pragma GCC unroll 4
    for (int word = word_multiple; word < old_end; word += width) {
      step(word, word + mt19937::far_word);
    }
#pragma GCC unroll 4
    for (int word = far_is_old; word < words; word += width) {
      step(word, word - near_word);
    }
  }

  [[gnu::always_inline]] void step(int word, int far) {
    store(state_ + word,
          mt19937::next_word(load<Word>(state_ + word), load<Word>(state_ + word + 1), load<Word>(state_ + far)));
  }

  alignas(64) std::uint32_t state_[mt19937::state_words + word_multiple];
  std::int64_t first_word_;
};

// Transposes an 8 x 8 matrix of words.
[[gnu::always_inline]] inline void transpose(Simd<8>::Word (&rows)[8]) {
  __m256i pairs[8];
  __m256i quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    const auto even = reinterpret_cast<__m256i>(rows[i]);
    const auto odd = reinterpret_cast<__m256i>(rows[i + 1]);
    pairs[i] = _mm256_unpacklo_epi32(even, odd);
    pairs[i + 1] = _mm256_unpackhi_epi32(even, odd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 4) {
    quads[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = reinterpret_cast<Simd<8>::Word>(_mm256_permute2x128_si256(quads[i], quads[i + 4], 0x20));
    rows[i + 4] = reinterpret_cast<Simd<8>::Word>(_mm256_permute2x128_si256(quads[i], quads[i + 4], 0x31));
  }
}

// Starts 8 * vectors generators for their first `words` outputs, seeding them side by side: a seed word depends on the
// one before it, so that the seeding of one generator is a chain of latencies.
template <int vectors>
void start_generators(const std::uint32_t* seeds, int words, Generator* generators) {
  using Word = Simd<8>::Word;
  Word seed_word[vectors];
#pragma GCC unroll 4
  for (int vector = 0; vector < vectors; ++vector) {
    seed_word[vector] = load<Word>(seeds + 8 * vector);
  }
  for (int first = 0; first < Generator::seed_words(words); first += 8) {
    Word block[vectors][8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
#pragma GCC unroll 4
      for (int vector = 0; vector < vectors; ++vector) {
        block[vector][i] = seed_word[vector];
        seed_word[vector] = mt19937::next_seed_word(seed_word[vector], static_cast<std::uint32_t>(first + i + 1));
      }
    }
#pragma GCC unroll 4
    for (int vector = 0; vector < vectors; ++vector) {
      transpose(block[vector]);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        store(generators[8 * vector + i].state() + first, block[vector][i]);
      }
    }
  }
  for (int i = 0; i < 8 * vectors; ++i) {
    generators[i].start(words);
  }
}

// Starts one generator for its first `words` outputs.
void start_generator(std::uint32_t seed, int words, Generator& generator) {
  for (int i = 0; i < Generator::seed_words(words); ++i) {
    generator.state()[i] = seed;
    seed = mt19937::next_seed_word(seed, static_cast<std::uint32_t>(i + 1));
  }
  generator.start(words);
}

}  // namespace
}  // namespace chunked_noise::cpu

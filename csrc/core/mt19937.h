// MT19937 as ATen's CPU generator runs it: M. Matsumoto, T. Nishimura, "Mersenne Twister: a 623-dimensionally
// equidistributed uniform pseudo-random number generator", 1998, seeded by their init_genrand of 2002.
//
// The stream is one recurrence over 32-bit words that starts with 624 seed words:
// w[i + 624] = next_word(w[i], w[i + 1], w[i + 397]). Output k of a generator is temper(w[k + 624]).
//
// Every function takes a word or a SIMD vector of words, and is always inlined: a copy that was compiled for one
// instruction set must never become the one that the linker keeps for all.
#pragma once

#include <cstdint>

namespace chunked_noise::mt19937 {

constexpr int state_words = 624;
constexpr int far_word = 397;

// Seed word `index` from the one before it. Seed word 0 is the low half of the seed.
template <class Word>
[[gnu::always_inline]] inline Word next_seed_word(Word previous, std::uint32_t index) {
  return (previous ^ (previous >> 30)) * 1812433253u + index;
}

template <class Word>
[[gnu::always_inline]] inline Word next_word(Word first, Word second, Word far) {
  const Word mixed = (first & 0x80000000u) | (second & 0x7FFFFFFFu);
  return far ^ (mixed >> 1) ^ (-(second & 1u) & 0x9908B0DFu);
}

template <class Word>
[[gnu::always_inline]] inline Word temper(Word word) {
  word ^= word >> 11;
  word ^= (word << 7) & 0x9D2C5680u;
  word ^= (word << 15) & 0xEFC60000u;
  return word ^ (word >> 18);
}

}  // namespace chunked_noise::mt19937

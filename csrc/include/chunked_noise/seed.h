// The seed of one chunk's generator. Needs no torch; usable in constant expressions and in device code.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CHUNKED_NOISE_HOST_DEVICE __host__ __device__
#else
#define CHUNKED_NOISE_HOST_DEVICE
#endif

namespace chunked_noise {

namespace detail {

// SplitMix64's finalizer: G. Steele, D. Lea, C. Flood, "Fast splittable pseudorandom number generators", 2014.
CHUNKED_NOISE_HOST_DEVICE constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// MurmurHash3's 32-bit finalizer (A. Appleby, public domain): a permutation of the 32-bit integers.
CHUNKED_NOISE_HOST_DEVICE constexpr std::uint32_t fmix32(std::uint32_t h) {
  h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
  h = (h ^ (h >> 13)) * 0xC2B2AE35u;
  return h ^ (h >> 16);
}

}  // namespace detail

// The seed of the generator that draws chunk `chunk_index` of the noise with seed `seed`.
//
// For a fixed seed the low half is a permutation of the low 32 bits of chunk_index, because PyTorch's CPU generator
// keeps only the low 32 bits of a seed: no two of the first 2^32 chunks of a sequence share a generator on any device.
CHUNKED_NOISE_HOST_DEVICE constexpr std::uint64_t derive_chunk_seed(std::uint64_t seed, std::uint64_t chunk_index) {
  constexpr std::uint64_t golden_gamma = 0x9E3779B97F4A7C15u;
  const std::uint64_t key = detail::mix64(seed + golden_gamma);
  const std::uint64_t high = detail::mix64(key + golden_gamma * (chunk_index + 1)) >> 32;
  const auto key_low = static_cast<std::uint32_t>(key);
  const auto key_high = static_cast<std::uint32_t>(key >> 32);
  const auto index_low = static_cast<std::uint32_t>(chunk_index);
  const auto index_high = static_cast<std::uint32_t>(chunk_index >> 32);
  const std::uint32_t low = detail::fmix32(detail::fmix32(index_low ^ key_low) + key_high + index_high);
  return high << 32 | low;
}

}  // namespace chunked_noise

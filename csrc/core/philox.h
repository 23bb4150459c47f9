// The normal draws of torch.randn on an NVIDIA GPU, addressed by element.
//
// ATen's distribution kernel is a grid-stride loop: thread i of T seeds a Philox4x32-10 generator with subsequence i,
// and iteration k draws `lanes` values from it for the elements k * lanes * T + lane * T + i. So element e of a draw is
//
//     lane e / T mod lanes   of counter (e / T / lanes, e mod T),
//
// where T = 256 * SMs * (resident threads of an SM / 256) whatever the size of the draw: a smaller grid would only
// meet elements that are below its size, where k = lane = 0.
//
// J. Salmon, M. Moraes, R. Dror, D. Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011 (Philox).
// G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
//
// This is device code. Without nvcc it is host code, so that tests can run it where there is no GPU; only the last bits
// of logarithm, sine and cosine differ there.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define CHUNKED_NOISE_DEVICE __device__
#else
#define CHUNKED_NOISE_DEVICE
#if !defined(QUALIFIERS)
#define QUALIFIERS static inline  // of curand's device functions
#endif
#include <cuda_runtime.h>
#endif
// The arithmetic is curand's own code, as in ATen: equal expressions are contracted and rounded alike.
#include <curand_kernel.h>

namespace chunked_noise {

// Four random words.
CHUNKED_NOISE_DEVICE inline uint4 philox(std::uint64_t seed, std::uint32_t counter, std::uint32_t subsequence) {
  const uint2 key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  return curand_Philox4x32_10(uint4{counter, 0, subsequence, 0}, key);
}

// How words become normal values: lanes 2 * pair and 2 * pair + 1 are a sine and a cosine of one Box-Muller step.
template <class Real>
struct Normal;

template <>
struct Normal<float> {
  static constexpr int lanes = 4;

  CHUNKED_NOISE_DEVICE static float2 pair(const uint4& words, int pair) {
    return pair == 0 ? _curand_box_muller(words.x, words.y) : _curand_box_muller(words.z, words.w);
  }
};

template <>
struct Normal<double> {
  static constexpr int lanes = 2;

  CHUNKED_NOISE_DEVICE static double2 pair(const uint4& words, int /*pair*/) {
    return _curand_box_muller_double(words.x, words.y, words.z, words.w);
  }
};

// `normal` with standard deviation `std`, rounded once to the type of the destination.
template <class Scalar, class Real>
CHUNKED_NOISE_DEVICE Scalar scaled(Real normal, Real std) {
  // ATen adds the mean: zero, but it turns -0 into 0.
  return static_cast<Scalar>(normal * std + Real(0));
}

}  // namespace chunked_noise

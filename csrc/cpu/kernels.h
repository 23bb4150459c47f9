// The CPU engine's kernels: ATen's normal_ on a fresh CPU generator, bit for bit, for any part of any number of chunks.
// They are for Linux on x86-64 with ATen's capability AVX2 or AVX512, compiled by GCC (clang has no per-file
// `#pragma GCC target`); elsewhere these files are empty.
#pragma once

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

#include "core/runs.h"

namespace chunked_noise::cpu {

enum class InstructionSet { avx2, avx512 };

// How ATen draws bfloat16 and float16 when a draw has 16 elements or more.
enum class HalfArithmetic {
  rounded,       // torch <= 2.11: every operation is rounded to the half type
  float_libm,    // torch 2.12: in float by libm, rounded once
  float_vector,  // torch >= 2.13: by the vectorised float kernel, rounded once
};

// Fills `count` (at most max_segments) segments of draws of `chunk_numel` elements; a segment's destination counts from
// `out`. `stdv` is what ATen's normal_ is given, a double for every dtype: 1, or 1 / sqrt(2) for the parts of complex
// numbers; a kernel rounds it as ATen does.
template <class scalar_t>
using FillSegments = void (*)(const Segment* segments, int count, std::int64_t chunk_numel, double stdv, scalar_t* out);

// How many segments are best handed to a kernel at once: it seeds their generators side by side, on its stack (84 KB).
constexpr int max_segments = 32;

struct Kernels {
  FillSegments<float> float32;
  FillSegments<double> float64;
  FillSegments<c10::BFloat16> bfloat16;
  FillSegments<c10::Half> float16;

  // For tests: what float32 draws, and half draws with HalfArithmetic::float_vector, make of `blocks` times 16 words of
  // a generator's state.
  void (*transform)(const std::uint32_t* words, std::int64_t blocks, double stdv, float* out);

  FillSegments<float> of(float) const { return float32; }
  FillSegments<double> of(double) const { return float64; }
  FillSegments<c10::BFloat16> of(c10::BFloat16) const { return bfloat16; }
  FillSegments<c10::Half> of(c10::Half) const { return float16; }
};

Kernels select_kernels(InstructionSet instruction_set, HalfArithmetic half_arithmetic);

// Writes elements [begin, end) of the destination of `runs`, which starts at `out`. Any cut of [0, runs.numel()) into
// such ranges gives the same bits. With `rows`, run r is written at row rows[r] and not at row r.
template <class scalar_t>
void fill(const Kernels& kernels, const Runs& runs, double stdv, scalar_t* out, std::int64_t begin, std::int64_t end,
          const std::int64_t* rows = nullptr) {
  const std::int64_t run_numel = runs.length * runs.features;
  Segment segments[max_segments];
  int count = 0;
  const auto flush = [&] {
    kernels.of(scalar_t{})(segments, count, runs.chunk_numel(), stdv, out);
    count = 0;
  };
  for_each_segment(runs, begin, end, [&](const Segment& segment) {
    segments[count] = segment;
    if (rows != nullptr) {
      const std::int64_t run = segment.destination / run_numel;
      segments[count].destination += (rows[run] - run) * run_numel;
    }
    ++count;
    if (count == max_segments) {
      flush();
    }
  });
  if (count > 0) {
    flush();
  }
}

}  // namespace chunked_noise::cpu

#endif

// Which thread of the CUDA engine writes which elements. Device code, and host code without nvcc.
//
// A block works on a tile, a thread on its units. Neighbouring elements of a draw belong to different Philox counters;
// it is elements T apart that share one (core/philox.h). So there are two ways to cut a destination into tiles:
//
//     LinearTiles   consecutive elements. For runs or chunks of at most T elements, where no counter is wanted twice.
//     CounterTiles  consecutive counters, each with all its lanes: a counter is computed once for up to four elements.
//
// Both hand out `width` neighbouring elements at a time, which are one aligned store when `width` divides the number
// of features, and so every other length here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/divider.h"
#include "core/philox.h"
#include "core/runs.h"

namespace chunked_noise::cuda {

constexpr int block_size = 256;

// `width` neighbouring subsequences of one chunk's generator, at one counter.
struct Unit {
  std::uint64_t chunk_seed;
  std::uint32_t counter;
  std::uint32_t subsequence;  // the first of them
  unsigned lanes;             // bit i: lane i is wanted
  std::int64_t destination;   // of lane 0, wanted or not; each next lane is T elements further
};

// What both kinds of tiles need to know.
template <int lanes>
struct Geometry {
  Geometry(const Runs& runs, std::int64_t threads)
      : runs(runs),
        run_numel(runs.length * runs.features),
        chunk_numel(static_cast<std::uint32_t>(runs.chunk_numel())),
        by_run_numel(run_numel),
        by_features(runs.features),
        by_chunk_size(runs.chunk_size),
        by_threads(static_cast<std::uint32_t>(threads)),
        by_counter_numel(static_cast<std::uint32_t>(threads * lanes)) {}

  Runs runs;
  std::int64_t run_numel;
  std::uint32_t chunk_numel;
  Divider<std::uint64_t> by_run_numel;
  Divider<std::uint64_t> by_features;
  Divider<std::uint64_t> by_chunk_size;
  Divider<std::uint32_t> by_threads;        // T
  Divider<std::uint32_t> by_counter_numel;  // elements of a draw with the same counter, in all subsequences
};

template <int lanes, int width>
class LinearTiles {
 public:
  // The draw of a chunk must have less than 2^31 elements.
  LinearTiles(const Runs& runs, std::int64_t threads)
      : geometry_(runs, threads),
        // More units for a thread share its work on the tile, but first there should be one for every thread.
        units_(runs.numel() < 4 * width * threads ? 1 : 4) {}

  CHUNKED_NOISE_DEVICE std::int64_t threads() const { return geometry_.by_threads.divisor(); }

  std::int64_t blocks() const { return (geometry_.runs.numel() + tile_numel() - 1) / tile_numel(); }

  template <class Visit>
  CHUNKED_NOISE_DEVICE void for_each_unit(std::int64_t block, int thread, Visit&& visit) const {
    const std::int64_t begin = block * tile_numel();
    // The piece at the start of the tile is the same for all threads of a block, and mostly the only one they meet.
    Piece piece = piece_at(begin);
    for (int unit = 0; unit < units_; ++unit) {
      const std::int64_t destination = begin + (unit * block_size + thread) * width;
      if (destination >= geometry_.runs.numel()) {
        return;
      }
      if (destination >= piece.end) {
        piece = piece_at(destination);
      }
      const auto element = piece.element + static_cast<std::uint32_t>(destination - piece.begin);
      const auto [row, subsequence] = geometry_.by_threads(element);
      const std::int64_t lane = row % lanes;
      visit(Unit{piece.chunk_seed, row / lanes, subsequence, 1u << lane, destination - lane * threads()});
    }
  }

 private:
  // Elements [begin, end) of the destination: the rest of a segment, from `element` of its chunk on.
  struct Piece {
    std::int64_t begin;
    std::int64_t end;
    std::uint64_t chunk_seed;
    std::uint32_t element;
  };

  // Runs::source without a division.
  CHUNKED_NOISE_DEVICE Piece piece_at(std::int64_t destination) const {
    const Runs& runs = geometry_.runs;
    const auto [run, offset] = geometry_.by_run_numel(destination);
    const auto [row, feature] = geometry_.by_features(offset);
    const auto [chunk, position] = geometry_.by_chunk_size(runs.first_position(run) + row);
    const auto element = static_cast<std::uint32_t>(position * runs.features + feature);
    const std::int64_t left_in_run = geometry_.run_numel - offset;
    const std::int64_t left_in_chunk = geometry_.chunk_numel - element;
    return {destination, destination + (left_in_run < left_in_chunk ? left_in_run : left_in_chunk),
            derive_chunk_seed(runs.seed[run], chunk), element};
  }

  CHUNKED_NOISE_HOST_DEVICE std::int64_t tile_numel() const { return std::int64_t{units_} * block_size * width; }

  Geometry<lanes> geometry_;
  int units_;
};

// The counters of all the chunks of a run are numbered through. A run has a fixed number of them, from the one of
// its first element on; a tile is a piece of all the subsequences of one.
template <int lanes, int width>
class CounterTiles {
 public:
  // The draw of a chunk must have less than 2^31 elements.
  CounterTiles(const Runs& runs, std::int64_t threads)
      : geometry_(runs, threads),
        by_counters_per_chunk_(ceil_div(geometry_.chunk_numel, geometry_.by_counter_numel.divisor())),
        by_counters_per_run_(counters_per_run()),
        by_tiles_per_counter_(ceil_div(threads, block_size * width)) {}

  CHUNKED_NOISE_DEVICE std::int64_t threads() const { return geometry_.by_threads.divisor(); }

  std::int64_t blocks() const {
    return geometry_.runs.count * by_counters_per_run_.divisor() * by_tiles_per_counter_.divisor();
  }

  template <class Visit>
  CHUNKED_NOISE_DEVICE void for_each_unit(std::int64_t block, int thread, Visit&& visit) const {
    const Runs& runs = geometry_.runs;
    const auto [run_counter, tile] = by_tiles_per_counter_(static_cast<std::uint32_t>(block));
    const auto [run, counter_in_run] = by_counters_per_run_(run_counter);
    const std::uint32_t subsequence = (tile * block_size + thread) * width;
    if (subsequence >= threads()) {
      return;
    }
    const auto [first_chunk, position] = geometry_.by_chunk_size(runs.first_position(run));
    const auto first_element = static_cast<std::uint32_t>(position * runs.features);
    const std::uint32_t first_counter = geometry_.by_counter_numel(first_element).quotient;
    const auto [chunk_in_run, counter] = by_counters_per_chunk_(first_counter + counter_in_run);

    // Of lane 0, which may lie before the run, or behind it or its chunk, as every lane may.
    const std::int64_t element = std::int64_t{counter} * geometry_.by_counter_numel.divisor() + subsequence;
    const std::int64_t offset = std::int64_t{chunk_in_run} * geometry_.chunk_numel + element - first_element;
    unsigned wanted = 0;
    for (int lane = 0; lane < lanes; ++lane) {
      const std::int64_t lane_offset = offset + lane * threads();
      const bool in_run = lane_offset >= 0 && lane_offset < geometry_.run_numel;
      const bool in_chunk = element + lane * threads() < geometry_.chunk_numel;
      wanted |= static_cast<unsigned>(in_run && in_chunk) << lane;
    }
    if (wanted != 0) {
      visit(Unit{derive_chunk_seed(runs.seed[run], first_chunk + chunk_in_run), counter, subsequence, wanted,
                 run * geometry_.run_numel + offset});
    }
  }

 private:
  static std::uint32_t ceil_div(std::int64_t dividend, std::int64_t divisor) {
    return static_cast<std::uint32_t>((dividend + divisor - 1) / divisor);
  }

  // From the first counter of a run to its last, or a bound on that where the host cannot see the starts.
  std::uint32_t counters_per_run() const {
    const Runs& runs = geometry_.runs;
    const std::int64_t per_chunk = by_counters_per_chunk_.divisor();
    const std::int64_t chunk_numel = geometry_.chunk_numel;
    const std::int64_t counter_numel = geometry_.by_counter_numel.divisor();
    const std::int64_t first = runs.start.value % runs.chunk_size * runs.features;
    const std::int64_t end = first + geometry_.run_numel;
    const auto counter_of = [&](std::int64_t element) {
      return element / chunk_numel * per_chunk + element % chunk_numel / counter_numel;
    };
    if (runs.start.data == nullptr) {
      return static_cast<std::uint32_t>(counter_of(end - 1) - counter_of(first) + 1);
    }
    // Whole chunks have all their counters wherever they start. The rest meets the border of a counter once in
    // counter_numel elements, where it starts inside one, and once more at the end of a chunk.
    return static_cast<std::uint32_t>(geometry_.run_numel / chunk_numel * per_chunk +
                                      geometry_.run_numel % chunk_numel / counter_numel + 3);
  }

  Geometry<lanes> geometry_;
  Divider<std::uint32_t> by_counters_per_chunk_;
  Divider<std::uint32_t> by_counters_per_run_;
  Divider<std::uint32_t> by_tiles_per_counter_;
};

template <int bytes>
struct WordOf;
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<4> {
  using type = unsigned int;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<16> {
  using type = uint4;
};

// Stores neighbouring elements at once, as data that is written once and should not displace others in the caches.
template <int width, class Scalar>
CHUNKED_NOISE_DEVICE void store(const Scalar (&values)[width], Scalar* out) {
#if defined(__CUDACC__)
  // An intrinsic, since nvcc splits the assignment of an aligned struct into its members in kernels of this length.
  using Word = typename WordOf<sizeof(values)>::type;
  Word word;
  std::memcpy(&word, values, sizeof(values));
  __stcs(reinterpret_cast<Word*>(out), word);
#else
  std::memcpy(out, values, sizeof(values));
#endif
}

// Draws those of lanes 2 * pair and 2 * pair + 1 that are wanted: a logarithm and a square root serve both.
template <int pair, int width, class Scalar, class Real>
CHUNKED_NOISE_DEVICE void fill_pair(const Unit& unit, const uint4 (&words)[width], std::int64_t threads, Real std,
                                    Scalar* out) {
  const bool even_wanted = unit.lanes >> (2 * pair) & 1u;
  const bool odd_wanted = unit.lanes >> (2 * pair + 1) & 1u;
  if (!even_wanted && !odd_wanted) {
    return;
  }
  Scalar even[width];
  Scalar odd[width];
  for (int i = 0; i < width; ++i) {
    const auto normals = Normal<Real>::pair(words[i], pair);
    even[i] = scaled<Scalar>(normals.x, std);
    odd[i] = scaled<Scalar>(normals.y, std);
  }
  Scalar* const destination = out + (unit.destination + 2 * pair * threads);
  if (even_wanted) {
    store(even, destination);
  }
  if (odd_wanted) {
    store(odd, destination + threads);
  }
}

// Draws a unit into `out`.
template <int width, class Scalar, class Real>
CHUNKED_NOISE_DEVICE void fill_unit(const Unit& unit, std::int64_t threads, Real std, Scalar* out) {
  uint4 words[width];
  for (int i = 0; i < width; ++i) {
    words[i] = philox(unit.chunk_seed, unit.counter, unit.subsequence + i);
  }
  fill_pair<0>(unit, words, threads, std, out);
  if constexpr (Normal<Real>::lanes == 4) {
    fill_pair<1>(unit, words, threads, std, out);
  }
}

}  // namespace chunked_noise::cuda

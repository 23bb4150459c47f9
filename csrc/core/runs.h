// What is to be drawn (runs), and how it is cut at chunk boundaries (segments). The only code that knows chunks.
//
// A run is a number of consecutive positions of one seed's noise. Its values are
//
//     N(seed, position, feature) = element (position mod chunk_size) * features + feature
//                                  of the chunk draw of derive_chunk_seed(seed, position div chunk_size),
//
// where a chunk draw has chunk_size * features elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "chunked_noise/seed.h"

namespace chunked_noise {

// One value for all runs, or an array with one value a run. An array of another integer width is converted before.
template <class T>
struct PerRun {
  T value{};
  const T* data = nullptr;

  CHUNKED_NOISE_HOST_DEVICE T operator[](std::int64_t run) const { return data == nullptr ? value : data[run]; }
};

// Where one element of the destination comes from.
struct Source {
  std::uint64_t chunk_seed;
  std::int64_t element;  // of the chunk draw
};

// `count` runs of `length` positions each, written one after the other: the destination has count * length * features
// elements, and run r starts at element r * length * features.
struct Runs {
  PerRun<std::uint64_t> seed;
  PerRun<std::int64_t> start;  // first position, >= 0
  std::int64_t count = 0;
  std::int64_t length = 0;
  std::int64_t chunk_size = 1;
  std::int64_t features = 1;

  CHUNKED_NOISE_HOST_DEVICE std::int64_t numel() const { return count * length * features; }
  CHUNKED_NOISE_HOST_DEVICE std::int64_t chunk_numel() const { return chunk_size * features; }

  // A negative start can only come from a device whose values nobody looked at: its noise has no meaning, and no harm.
  CHUNKED_NOISE_HOST_DEVICE std::int64_t first_position(std::int64_t run) const {
    return start[run] < 0 ? 0 : start[run];
  }

  // The source of element `destination` of the destination, in [0, numel()).
  CHUNKED_NOISE_HOST_DEVICE Source source(std::int64_t destination) const {
    const std::int64_t row = destination / features;
    const std::int64_t run = row / length;
    const std::int64_t position = first_position(run) + row % length;
    return {derive_chunk_seed(seed[run], static_cast<std::uint64_t>(position / chunk_size)),
            position % chunk_size * features + destination % features};
  }
};

// Elements [begin, end) of the draw of one chunk, to be written from element `destination` of the destination on.
struct Segment {
  std::uint64_t chunk_seed;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t destination;
};

// Calls visit(Segment) for the segments that make up elements [begin, end) of the destination, in order. Any cut of
// [0, numel()) into such ranges gives the same values, so workers may share the destination as they like.
template <class Visit>
void for_each_segment(const Runs& runs, std::int64_t begin, std::int64_t end, Visit&& visit) {
  const std::int64_t chunk_numel = runs.chunk_numel();
  const std::int64_t run_numel = runs.length * runs.features;
  while (begin < end) {
    const Source source = runs.source(begin);
    const std::int64_t left_in_run = run_numel - begin % run_numel;
    const std::int64_t numel = std::min({end - begin, left_in_run, chunk_numel - source.element});
    visit(Segment{source.chunk_seed, source.element, source.element + numel, begin});
    begin += numel;
  }
}

// The first element of the destination, at or after `element`, where a segment of the whole destination starts; numel()
// if there is none.
inline std::int64_t next_segment_start(const Runs& runs, std::int64_t element) {
  if (element == runs.numel()) {
    return element;
  }
  const std::int64_t run_numel = runs.length * runs.features;
  const std::int64_t in_run = element % run_numel;
  const std::int64_t in_chunk = runs.source(element).element;
  const bool is_start = in_run == 0 || in_chunk == 0;
  return is_start ? element : element + std::min(run_numel - in_run, runs.chunk_numel() - in_chunk);
}

}  // namespace chunked_noise

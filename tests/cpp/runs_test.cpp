#include "core/runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "ops/parallel.h"

namespace chunked_noise {
namespace {

std::vector<Source> sources(const Runs& runs, std::int64_t begin, std::int64_t end) {
  std::vector<Source> result;
  std::int64_t expected_destination = begin;
  for_each_segment(runs, begin, end, [&](const Segment& segment) {
    EXPECT_EQ(segment.destination, expected_destination);
    EXPECT_LT(segment.begin, segment.end);
    EXPECT_LE(segment.end, runs.chunk_numel());
    for (std::int64_t element = segment.begin; element < segment.end; ++element) {
      result.push_back({segment.chunk_seed, element});
    }
    expected_destination += segment.end - segment.begin;
  });
  EXPECT_EQ(expected_destination, end);
  return result;
}

class RunsTest : public ::testing::TestWithParam<std::tuple<int, int, int, int>> {};

// Every cut of the destination gives each element the source that its own definition names.
TEST_P(RunsTest, SegmentsFollowTheDefinition) {
  const auto [count, length, chunk_size, features] = GetParam();
  const std::vector<std::uint64_t> seeds{7, ~std::uint64_t{0}, 0};
  const std::vector<std::int64_t> starts{0, 5, 1000003};
  Runs runs;
  runs.seed.data = seeds.data();
  runs.start.data = starts.data();
  runs.count = count;
  runs.length = length;
  runs.chunk_size = chunk_size;
  runs.features = features;

  std::vector<Source> expected;
  for (int run = 0; run < count; ++run) {
    for (std::int64_t position = starts[run]; position < starts[run] + length; ++position) {
      for (int feature = 0; feature < features; ++feature) {
        expected.push_back(
            {derive_chunk_seed(seeds[run], position / chunk_size), position % chunk_size * features + feature});
      }
    }
  }
  ASSERT_EQ(runs.numel(), static_cast<std::int64_t>(expected.size()));
  for (std::int64_t begin = 0; begin <= runs.numel(); ++begin) {
    for (const std::int64_t end : {begin, (begin + runs.numel()) / 2, runs.numel()}) {
      const auto actual = sources(runs, begin, end);
      ASSERT_EQ(actual.size(), static_cast<std::size_t>(end - begin));
      for (std::int64_t i = begin; i < end; ++i) {
        EXPECT_EQ(actual[i - begin].chunk_seed, expected[i].chunk_seed);
        EXPECT_EQ(actual[i - begin].element, expected[i].element);
        EXPECT_EQ(runs.source(i).element, expected[i].element);
      }
    }
  }

  // The starts of segments are the elements at which for_each_segment visits.
  std::vector<std::int64_t> visited;
  for_each_segment(runs, 0, runs.numel(), [&](const Segment& segment) { visited.push_back(segment.destination); });
  visited.push_back(runs.numel());
  auto next = visited.begin();
  for (std::int64_t element = 0; element <= runs.numel(); ++element) {
    EXPECT_EQ(next_segment_start(runs, element), *next);
    next += element == *next;
  }
}

INSTANTIATE_TEST_SUITE_P(Geometries, RunsTest,
                         ::testing::Combine(::testing::Values(1, 3), ::testing::Values(1, 2, 7, 8),
                                            ::testing::Values(1, 3, 4, 100), ::testing::Values(1, 2, 5)));

TEST(Runs, NegativeStartsMeanTheFirstPosition) {
  Runs runs;
  runs.seed.value = 7;
  runs.count = 1;
  runs.length = 9;
  runs.chunk_size = 4;
  const auto expected = sources(runs, 0, runs.numel());
  runs.start.value = -3;
  const auto actual = sources(runs, 0, runs.numel());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_EQ(actual[i].chunk_seed, expected[i].chunk_seed);
    EXPECT_EQ(actual[i].element, expected[i].element);
  }
}

TEST(ParallelFor, CallsBodyOnEveryElementOnceAndThrowsWhatItThrows) {
  for (const std::int64_t failing : {-1, 0, 500, 999}) {
    std::vector<std::atomic<int>> calls(1000);
    const auto body = [&](std::int64_t begin, std::int64_t end) {
      if (begin <= failing && failing < end) {
        throw std::out_of_range("body");
      }
      for (; begin < end; ++begin) {
        ++calls[begin];
      }
    };
    if (failing >= 0) {
      EXPECT_THROW(parallel_for(0, 1000, 7, body), std::out_of_range);
    } else {
      parallel_for(0, 1000, 7, body);
      EXPECT_EQ(std::count(calls.begin(), calls.end(), 1), 1000);
    }
  }
}

TEST(Runs, HugeChunkSize) {
  Runs runs;
  runs.count = 1;
  runs.length = 3;
  runs.features = 2;
  runs.chunk_size = std::int64_t{1} << 61;
  runs.start.value = (std::int64_t{1} << 61) - 1;
  const auto actual = sources(runs, 0, runs.numel());
  EXPECT_EQ(actual[0].element, runs.chunk_numel() - 2);
  EXPECT_EQ(actual[2].element, 0);
  EXPECT_EQ(actual[2].chunk_seed, derive_chunk_seed(0, 1));
}

}  // namespace
}  // namespace chunked_noise

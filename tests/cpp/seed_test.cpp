#include "chunked_noise/seed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace chunked_noise {
namespace {

static_assert(derive_chunk_seed(0, 0) == 0xa706dd2f6fe23341, "usable in constant expressions");

TEST(DeriveChunkSeed, KnownValues) {
  std::ifstream file(KNOWN_SEEDS);
  std::string line;
  ASSERT_TRUE(std::getline(file, line)) << KNOWN_SEEDS;
  int count = 0;
  while (std::getline(file, line)) {
    const auto first = line.find(',');
    const auto second = line.find(',', first + 1);
    const std::uint64_t seed = std::stoull(line.substr(0, first));
    const std::uint64_t chunk_index = std::stoull(line.substr(first + 1, second - first - 1));
    const std::uint64_t derived = std::stoull(line.substr(second + 1), nullptr, 16);
    EXPECT_EQ(derive_chunk_seed(seed, chunk_index), derived) << line;
    ++count;
  }
  EXPECT_GE(count, 9);
}

TEST(DeriveChunkSeed, LowHalfIsAPermutationOfTheIndex) {
  // Enough chunks that a random function would repeat with certainty (2,048 repeats expected).
  constexpr std::uint64_t count = std::uint64_t{1} << 22;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}}) {
    std::vector<std::uint32_t> low(count);
    for (std::uint64_t index = 0; index < count; ++index) {
      low[index] = static_cast<std::uint32_t>(derive_chunk_seed(seed, index));
    }
    std::sort(low.begin(), low.end());
    EXPECT_EQ(std::adjacent_find(low.begin(), low.end()), low.end()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace chunked_noise

// Runs a battery of TestU01 (P. L'Ecuyer, R. Simard, ACM TOMS 33(4), 2007) on the derived seeds as a stream of 32-bit
// numbers, and prints a line "p <p-value> <test>" for each statistic.
//
//   testu01 chunks|seeds high|low|both|reversed SmallCrush|Crush FIRST
//
// "chunks": seed FIRST + 7 and chunks FIRST, FIRST + 1, ...; "seeds": that chunk and those seeds. "both" gives the high
// and the low half in turn; "reversed" is "both" with the bits in reverse, because TestU01 looks at leading bits most.
#include <cstdint>
#include <cstdio>
#include <string>

#include "chunked_noise/seed.h"

extern "C" {
#include <testu01/bbattery.h>
#include <testu01/swrite.h>
#include <testu01/unif01.h>
}

namespace {

bool over_chunks;
std::string part;
std::uint64_t first;
std::uint64_t drawn = 0;

std::uint64_t seed_at(std::uint64_t i) {
  return over_chunks ? chunked_noise::derive_chunk_seed(first + 7, first + i)
                     : chunked_noise::derive_chunk_seed(first + i, first + 7);
}

std::uint32_t reversed(std::uint32_t x) {
  std::uint32_t y = 0;
  for (int bit = 0; bit < 32; ++bit) y |= (x >> bit & 1u) << (31 - bit);
  return y;
}

unsigned int next() {
  const std::uint64_t i = drawn++;
  if (part == "high") return static_cast<std::uint32_t>(seed_at(i) >> 32);
  if (part == "low") return static_cast<std::uint32_t>(seed_at(i));
  const auto half = static_cast<std::uint32_t>(seed_at(i / 2) >> (i % 2 ? 0 : 32));
  return part == "reversed" ? reversed(half) : half;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  over_chunks = std::string(argv[1]) == "chunks";
  part = argv[2];
  first = std::stoull(argv[4]);
  std::string name = std::string("derive_chunk_seed, over ") + argv[1] + ", " + part;
  swrite_Basic = FALSE;
  unif01_Gen* generator = unif01_CreateExternGenBits(name.data(), next);
  if (std::string(argv[3]) == "Crush") {
    bbattery_Crush(generator);
  } else {
    bbattery_SmallCrush(generator);
  }
  for (int i = 0; i < bbattery_NTests; ++i) std::printf("p %.17g %s\n", bbattery_pVal[i], bbattery_TestNames[i]);
  unif01_DeleteExternGenBits(generator);
}

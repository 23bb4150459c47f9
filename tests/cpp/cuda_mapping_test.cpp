// Runs the CUDA engine's device code on the host, for every thread of its launches, against an emulation of ATen's
// kernel. The mathematical functions are the host's on both sides: what is proved is which random words become which
// element, that every element is written once, and the conversions. The last bits are for tests on a GPU to compare.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/divider.h"
#include "core/philox.h"
#include "core/runs.h"
#include "cuda/tiles.h"

namespace chunked_noise::cuda {
namespace {

struct Gpu {
  const char* name;
  unsigned processors;
  unsigned threads_per_processor;

  std::int64_t threads() const { return std::int64_t{processors} * (threads_per_processor / 256) * 256; }
};

const Gpu kT4{"T4", 40, 1024};
const Gpu kA100{"A100", 108, 2048};
const Gpu kH100{"H100", 132, 2048};
// Made up, so that small draws reach every lane and many counters.
const Gpu kTiny{"T = 256", 1, 256};
const Gpu kSmall{"T = 512", 1, 512};
const Gpu kOdd{"T = 768", 3, 511};

float4 next(curandStatePhilox4_32_10_t* state, float) { return curand_normal4(state); }
double2 next(curandStatePhilox4_32_10_t* state, double) { return curand_normal2_double(state); }

// distribution_elementwise_grid_stride_kernel and calc_execution_policy of ATen/native/cuda/DistributionTemplates.h,
// line by line, for a generator that is just seeded.
template <class Scalar, class Real>
std::vector<Scalar> aten_draw(const Gpu& gpu, std::uint64_t seed, std::int64_t numel, Real std) {
  using Values = decltype(next(nullptr, Real()));
  constexpr int unroll_factor = sizeof(Values) / sizeof(Real);
  constexpr std::int64_t block_size = 256;
  const std::int64_t blocks_per_processor = gpu.threads_per_processor / block_size;
  const std::int64_t grid_size =
      std::min<std::int64_t>((numel + block_size - 1) / block_size, gpu.processors * blocks_per_processor);
  std::vector<Scalar> out(numel);
  for (std::int64_t block = 0; block < grid_size; ++block) {
    for (std::int64_t thread = 0; thread < block_size; ++thread) {
      const std::int64_t idx = block * block_size + thread;
      curandStatePhilox4_32_10_t state;
      curand_init(seed, idx, 0, &state);
      const std::int64_t rounded_size =
          ((numel - 1) / (block_size * grid_size * unroll_factor) + 1) * block_size * grid_size * unroll_factor;
      for (std::int64_t linear_index = idx; linear_index < rounded_size;
           linear_index += block_size * grid_size * unroll_factor) {
        const Values rand = next(&state, Real());
        Real values[unroll_factor];
        std::memcpy(values, &rand, sizeof(values));
        for (int ii = 0; ii < unroll_factor; ++ii) {
          const std::int64_t li = linear_index + block_size * grid_size * ii;
          if (li < numel) {
            out[li] = static_cast<Scalar>(values[ii] * std + Real(0));
          }
        }
      }
    }
  }
  return out;
}

// A dtype of torch: complex ones are draws of twice as many real numbers.
template <class ScalarType, class RealType, int parts_>
struct Dtype {
  using Scalar = ScalarType;
  using Real = RealType;
  static constexpr int parts = parts_;
  static constexpr int lanes = Normal<Real>::lanes;
  static constexpr int width = 16 / sizeof(Real);
  static Real std() { return static_cast<Real>(parts == 1 ? 1 : 1 / std::sqrt(2.0)); }
};

// Runs every thread of a launch.
template <class Tiles, class Visit>
void for_each_unit(const Tiles& tiles, Visit&& visit) {
  for (std::int64_t block = 0; block < tiles.blocks(); ++block) {
    for (int thread = 0; thread < block_size; ++thread) {
      tiles.for_each_unit(block, thread, visit);
    }
  }
}

// Visits the elements of a unit: their destination, lane and place among `width` subsequences.
template <class Visit>
void for_each_element(const Unit& unit, const Gpu& gpu, int lanes, int width, Visit&& visit) {
  for (int lane = 0; lane < lanes; ++lane) {
    for (int i = 0; i < width && unit.lanes >> lane & 1; ++i) {
      visit(unit.destination + lane * gpu.threads() + i, lane, i);
    }
  }
}

// What the launch writes: runs every thread of it, and checks that each element is written once.
template <class Dtype, int width, template <int, int> class Tiles>
std::vector<typename Dtype::Scalar> run_kernel(const Runs& runs, const Gpu& gpu) {
  struct alignas(16) Vector {
    typename Dtype::Scalar values[16 / sizeof(typename Dtype::Scalar)];
  };
  const std::int64_t numel = runs.numel();
  std::vector<Vector> storage(numel * sizeof(typename Dtype::Scalar) / sizeof(Vector) + 1);
  auto* const out = storage[0].values;
  std::vector<unsigned char> writes(numel);
  const Tiles<Dtype::lanes, width> tiles(runs, gpu.threads());
  for_each_unit(tiles, [&](const Unit& unit) {
    for_each_element(unit, gpu, Dtype::lanes, width, [&](std::int64_t element, int, int) { ++writes.at(element); });
    fill_unit<width>(unit, gpu.threads(), Dtype::std(), out);
  });
  EXPECT_EQ(std::count(writes.begin(), writes.end(), 1), numel);
  return {out, out + numel};
}

// The definition: every chunk drawn whole by ATen, and the runs copied from it.
template <class Dtype>
std::vector<typename Dtype::Scalar> expected_noise(const Runs& runs, const Gpu& gpu) {
  std::map<std::uint64_t, std::vector<typename Dtype::Scalar>> draws;
  std::vector<typename Dtype::Scalar> noise;
  for (std::int64_t run = 0; run < runs.count; ++run) {
    for (std::int64_t position = runs.start[run]; position < runs.start[run] + runs.length; ++position) {
      const std::uint64_t seed = derive_chunk_seed(runs.seed[run], position / runs.chunk_size);
      auto& draw = draws[seed];
      if (draw.empty()) {
        draw = aten_draw<typename Dtype::Scalar>(gpu, seed, runs.chunk_numel(), Dtype::std());
      }
      const auto begin = draw.begin() + position % runs.chunk_size * runs.features;
      noise.insert(noise.end(), begin, begin + runs.features);
    }
  }
  return noise;
}

template <class Scalar>
bool same_bits(const std::vector<Scalar>& left, const std::vector<Scalar>& right) {
  return left.size() == right.size() && std::memcmp(left.data(), right.data(), left.size() * sizeof(Scalar)) == 0;
}

// Every kernel that may be launched for these runs: both kinds of tiles, aligned where that is possible and not.
template <class Dtype>
void expect_aten_noise(Runs runs, const Gpu& gpu) {
  runs.features *= Dtype::parts;
  SCOPED_TRACE(testing::Message() << gpu.name << ", runs " << runs.count << " x " << runs.length << " x "
                                  << runs.features << ", chunk size " << runs.chunk_size << ", start "
                                  << runs.start[0]);
  const auto expected = expected_noise<Dtype>(runs, gpu);
  constexpr int width = Dtype::width;
  EXPECT_TRUE(same_bits(run_kernel<Dtype, 1, LinearTiles>(runs, gpu), expected));
  EXPECT_TRUE(same_bits(run_kernel<Dtype, 1, CounterTiles>(runs, gpu), expected));
  if (runs.features % width == 0) {
    EXPECT_TRUE(same_bits(run_kernel<Dtype, width, LinearTiles>(runs, gpu), expected));
    EXPECT_TRUE(same_bits(run_kernel<Dtype, width, CounterTiles>(runs, gpu), expected));
  }
}

Runs make_runs(std::uint64_t seed, std::int64_t start, std::int64_t count, std::int64_t length, std::int64_t chunk_size,
               std::int64_t features) {
  Runs runs;
  runs.seed.value = seed;
  runs.start.value = start;
  runs.count = count;
  runs.length = length;
  runs.chunk_size = chunk_size;
  runs.features = features;
  return runs;
}

template <class Dtype>
class CudaMapping : public testing::Test {};

using Dtypes = testing::Types<Dtype<float, float, 1>, Dtype<double, double, 1>, Dtype<c10::Half, float, 1>,
                              Dtype<c10::BFloat16, float, 1>, Dtype<float, float, 2>, Dtype<double, double, 2>,
                              Dtype<c10::Half, float, 2>>;
struct DtypeNames {
  template <class Dtype>
  static std::string GetName(int index) {
    static const char* const names[] = {"float32",   "float64",    "float16",  "bfloat16",
                                        "complex64", "complex128", "complex32"};
    return names[index];
  }
};
TYPED_TEST_SUITE(CudaMapping, Dtypes, DtypeNames);

TYPED_TEST(CudaMapping, DrawsOfEverySizeOnRealGpus) {
  for (const Gpu& gpu : {kT4, kA100, kH100}) {
    const std::int64_t threads = gpu.threads();
    for (const std::int64_t numel :
         {std::int64_t{1}, std::int64_t{15}, std::int64_t{16}, std::int64_t{255}, std::int64_t{256}, std::int64_t{257},
          threads - 1, threads, threads + 1, 4 * threads - 1, 4 * threads, 4 * threads + 1, 9 * threads + 7}) {
      expect_aten_noise<TypeParam>(make_runs(0, 0, 1, 1, 1, numel), gpu);
    }
  }
}

TYPED_TEST(CudaMapping, DrawsOfEverySizeOnTinyGpus) {
  for (const Gpu& gpu : {kTiny, kSmall, kOdd}) {
    const std::int64_t threads = gpu.threads();
    for (const std::int64_t center :
         {std::int64_t{4}, std::int64_t{256}, threads, 2 * threads, 4 * threads, 8 * threads, 9 * threads}) {
      for (std::int64_t numel = center - 3; numel <= center + 8; ++numel) {
        expect_aten_noise<TypeParam>(make_runs(1, 0, 1, numel, numel, 1), gpu);
        expect_aten_noise<TypeParam>(make_runs(1, 0, 1, 2, 1, numel), gpu);
      }
    }
  }
}

TYPED_TEST(CudaMapping, SeedsUseAll64Bits) {
  for (const std::uint64_t seed :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    expect_aten_noise<TypeParam>(make_runs(seed, 5, 1, 9, 4, 300), kTiny);
  }
}

TYPED_TEST(CudaMapping, WindowsOfEveryRun) {
  std::mt19937_64 random(20260101);
  const auto below = [&](std::int64_t bound) { return static_cast<std::int64_t>(random() % bound); };
  for (int trial = 0; trial < 300; ++trial) {
    const Gpu gpu = trial % 3 == 0 ? kTiny : trial % 3 == 1 ? kSmall : kOdd;
    // Every third trial is aligned for all dtypes; one in five has chunks of several counters.
    const std::int64_t features = (trial % 3 == 0 ? 4 : 1) * (1 + below(trial % 5 == 0 ? 700 : 40));
    const std::int64_t chunk_size = 1 + below(trial % 2 == 0 ? 4 : 60);
    const std::int64_t count = 1 + below(4);
    const std::int64_t length = 1 + below(trial % 4 == 0 ? 3 : 100);
    Runs runs = make_runs(random(), below(3 * chunk_size), count, length, chunk_size, features);
    expect_aten_noise<TypeParam>(runs, gpu);

    std::vector<std::uint64_t> seeds(count);
    std::vector<std::int64_t> starts(count);
    for (std::int64_t run = 0; run < count; ++run) {
      seeds[run] = random();
      starts[run] = below(3 * chunk_size);
    }
    runs.seed.data = seeds.data();
    runs.start.data = starts.data();
    expect_aten_noise<TypeParam>(runs, gpu);
  }
}

TYPED_TEST(CudaMapping, PositionsUpToTheLast) {
  for (const std::int64_t chunk_size : {1, 3, 1024}) {
    const std::int64_t last = std::numeric_limits<std::int64_t>::max() - 8;
    expect_aten_noise<TypeParam>(make_runs(7, last, 1, 8, chunk_size, 12), kTiny);
    expect_aten_noise<TypeParam>(make_runs(7, std::int64_t{1} << 32, 1, 8, chunk_size, 12), kTiny);
  }
}

TYPED_TEST(CudaMapping, NoNegativeZero) {
  // The normal is -0 where the uniform number rounds to 1; ATen adds the mean to it.
  using Real = typename TypeParam::Real;
  const Real zero = static_cast<Real>(scaled<typename TypeParam::Scalar>(-Real(0), TypeParam::std()));
  EXPECT_EQ(zero, 0);
  EXPECT_FALSE(std::signbit(zero));
}

// An element of the draw of a generator with this seed.
template <class Real>
Real value(const Gpu& gpu, std::uint64_t seed, std::int64_t element) {
  const std::int64_t row = element / gpu.threads();
  const std::int64_t lane = row % Normal<Real>::lanes;
  Real out;
  fill_unit<1>(Unit{seed, static_cast<std::uint32_t>(row / Normal<Real>::lanes),
                    static_cast<std::uint32_t>(element % gpu.threads()), 1u << lane, -lane * gpu.threads()},
               gpu.threads(), Real(1), &out);
  return out;
}

// Draws that people published from real GPUs, to the four decimals that torch prints.
template <class Real>
void expect_published(const Gpu& gpu, std::uint64_t seed, std::int64_t element, std::initializer_list<Real> values) {
  for (const Real published : values) {
    EXPECT_NEAR(value<Real>(gpu, seed, element), published, 5.1e-5) << gpu.name << ", element " << element;
    ++element;
  }
}

TEST(CudaMappingPublished, FirstValuesOfSeed0) {
  expect_published(kH100, 0, 0,
                   {-0.9247f, -0.4253f, -2.6438f, 0.1452f, -0.1209f, -0.5797f, -0.6229f, -0.3284f, -1.0745f, -0.3631f});
  expect_published(kH100, 0, 0, {-0.3104, -0.0343, 0.1756, -2.2804, 0.5039, 0.5596});
}

// github.com/pytorch/pytorch/issues/143086: torch 2.5.1, manual_seed(1), the last values of a draw of 9,483,264.
TEST(CudaMappingPublished, LastValuesOfALargeDrawDependOnTheGpu) {
  expect_published(kH100, 1, 9'483'264 - 3, {-0.6970f, -0.7780f, 0.3267f});
  expect_published(kA100, 1, 9'483'264 - 3, {0.1549f, -0.6797f, -0.1656f});
}

// One line of tests/data/cuda_streams.csv, whose last columns are approximate values.
struct PinnedStream {
  Gpu gpu;
  int lanes;
  Runs runs;
  std::uint64_t words;
  std::vector<double> values;
};

std::vector<PinnedStream> pinned_streams() {
  std::ifstream file(PINNED_STREAMS);
  std::string line;
  std::getline(file, line);
  std::vector<PinnedStream> streams;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream fields(line);
    std::int64_t threads, chunk_size, features, start, length;
    std::uint64_t seed;
    PinnedStream stream;
    fields >> threads >> stream.lanes >> seed >> chunk_size >> features >> start >> length >> std::hex >> stream.words;
    stream.gpu = {"pinned", static_cast<unsigned>(threads / 256), 256};
    stream.runs = make_runs(seed, start, 1, length, chunk_size, features);
    for (double value; fields >> value;) {
      stream.values.push_back(value);
    }
    streams.push_back(stream);
  }
  return streams;
}

// The hash of make_streams.py: of the words behind each element, and its lane.
template <int lanes, class Tiles>
std::uint64_t hash_words(const Tiles& tiles, const Gpu& gpu) {
  using chunked_noise::detail::mix64;
  std::uint64_t sum = 0;
  for_each_unit(tiles, [&](const Unit& unit) {
    for_each_element(unit, gpu, lanes, 1, [&](std::int64_t element, int lane, int i) {
      const uint4 words = philox(unit.chunk_seed, unit.counter, unit.subsequence + i);
      std::uint64_t hash = mix64(element);
      hash = mix64(hash ^ (words.x | std::uint64_t{words.y} << 32));
      hash = mix64(hash ^ (words.z | std::uint64_t{words.w} << 32));
      sum += mix64(hash ^ static_cast<std::uint64_t>(lane));
    });
  });
  return sum;
}

template <class Dtype>
void expect_pinned(const PinnedStream& stream) {
  const auto& [gpu, lanes, runs, words, values] = stream;
  constexpr int kLanes = Dtype::lanes;
  EXPECT_EQ((hash_words<kLanes>(LinearTiles<kLanes, 1>(runs, gpu.threads()), gpu)), words) << "a promise broke";
  EXPECT_EQ((hash_words<kLanes>(CounterTiles<kLanes, 1>(runs, gpu.threads()), gpu)), words) << "a promise broke";
  const auto noise = run_kernel<Dtype, 1, LinearTiles>(runs, gpu);
  ASSERT_EQ(values.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(noise[noise.size() - 4 + i], values[i], 1e-4);
  }
}

TEST(CudaMappingPinned, WordsAndValues) {
  const auto streams = pinned_streams();
  EXPECT_EQ(streams.size(), 48u) << PINNED_STREAMS;
  for (const PinnedStream& stream : streams) {
    SCOPED_TRACE(testing::Message() << "T = " << stream.gpu.threads() << ", lanes " << stream.lanes << ", chunk size "
                                    << stream.runs.chunk_size << ", features " << stream.runs.features);
    if (stream.lanes == 4) {
      expect_pinned<Dtype<float, float, 1>>(stream);
    } else {
      expect_pinned<Dtype<double, double, 1>>(stream);
    }
  }
}

template <class UInt>
void expect_exact_division() {
  constexpr UInt largest = static_cast<UInt>(-1) >> 1;
  std::vector<UInt> numbers{1, 2, 3, 5, 7, 255, 256, 257, largest, largest - 1, largest / 2, largest / 3};
  std::mt19937_64 random(1);
  for (int shift = 1; shift < static_cast<int>(8 * sizeof(UInt)); ++shift) {
    for (int trial = 0; trial < 20; ++trial) {
      numbers.push_back(static_cast<UInt>(random()) >> shift);
    }
    numbers.push_back((UInt{1} << (shift - 1)) - (shift > 1));
    numbers.push_back(UInt{1} << (shift - 1));
    numbers.push_back(static_cast<UInt>((UInt{1} << (shift - 1)) + 1) & largest);
  }
  std::vector<UInt> dividends = numbers;
  dividends.push_back(0);
  for (const UInt divisor : numbers) {
    if (divisor == 0) {
      continue;
    }
    const Divider<UInt> divide(divisor);
    const auto check = [&](UInt dividend) {
      const auto [quotient, remainder] = divide(dividend);
      ASSERT_EQ(quotient, dividend / divisor) << dividend << " / " << divisor;
      ASSERT_EQ(remainder, dividend % divisor) << dividend << " / " << divisor;
    };
    for (const UInt dividend : dividends) {
      check(dividend);
      const UInt multiple = dividend / divisor * divisor;
      check(multiple);
      check(multiple == 0 ? 0 : multiple - 1);  // where a quotient that is too large by a hair shows
    }
  }
}

TEST(Divider, DividesEvery31BitNumber) { expect_exact_division<std::uint32_t>(); }
TEST(Divider, DividesEvery63BitNumber) { expect_exact_division<std::uint64_t>(); }

}  // namespace
}  // namespace chunked_noise::cuda

// The CPU kernels against ATen: every comparison is of bits, with at::normal_ on a fresh CPU generator.
#if defined(__x86_64__) && defined(__linux__)

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Version.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "core/mt19937.h"
#include "core/runs.h"
#include "cpu/kernels.h"

namespace chunked_noise::cpu {
namespace {

constexpr double inverse_sqrt2 = 0.70710678118654752440;

constexpr HalfArithmetic half_arithmetic = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13
                                               ? HalfArithmetic::float_vector
                                           : TORCH_VERSION_MINOR == 12 ? HalfArithmetic::float_libm
                                                                       : HalfArithmetic::rounded;

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> sets;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    sets.push_back(InstructionSet::avx2);
  }
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    sets.push_back(InstructionSet::avx512);
  }
  return sets;
}

// The bits of the default capability differ from those of AVX2 and AVX512, which are equal.
bool reference_is_vectorised() { return at::get_cpu_capability() == "AVX2" || at::get_cpu_capability() == "AVX512"; }

template <class scalar_t>
std::vector<scalar_t> draw(std::uint64_t seed, std::int64_t numel, double stdv) {
  at::Tensor result = at::empty({numel}, at::TensorOptions().dtype(c10::CppTypeToScalarType<scalar_t>::value));
  result.normal_(0.0, stdv, at::detail::createCPUGenerator(seed));
  const scalar_t* data = result.const_data_ptr<scalar_t>();
  return std::vector<scalar_t>(data, data + numel);
}

// The destination of `runs`, made of whole draws. Keeps the draws that it has made.
template <class scalar_t>
class Reference {
 public:
  explicit Reference(double stdv) : stdv_(stdv) {}

  std::vector<scalar_t> destination(const Runs& runs) {
    std::vector<scalar_t> result(static_cast<std::size_t>(runs.numel()));
    for (std::int64_t i = 0; i < runs.numel(); ++i) {
      const Source source = runs.source(i);
      auto& values = draws_[{source.chunk_seed, runs.chunk_numel()}];
      if (values.empty()) {
        values = draw<scalar_t>(source.chunk_seed, runs.chunk_numel(), stdv_);
      }
      result[static_cast<std::size_t>(i)] = values[static_cast<std::size_t>(source.element)];
    }
    return result;
  }

 private:
  double stdv_;
  std::map<std::pair<std::uint64_t, std::int64_t>, std::vector<scalar_t>> draws_;
};

// Fills [begin, end) of a destination that is one element off alignment, and says where it differs from `expected` or
// from the pattern that was there, whose bits no draw has.
template <class scalar_t>
::testing::AssertionResult fills(const Kernels& kernels, const Runs& runs, double stdv, std::int64_t begin,
                                 std::int64_t end, const std::vector<scalar_t>& expected) {
  constexpr std::int64_t margin = 65;
  std::vector<scalar_t> buffer(expected.size() + 2 * margin);
  std::memset(static_cast<void*>(buffer.data()), 0xFF, buffer.size() * sizeof(scalar_t));
  std::vector<scalar_t> wanted = buffer;
  std::copy(expected.begin() + begin, expected.begin() + end, wanted.begin() + margin + begin);
  fill(kernels, runs, stdv, buffer.data() + margin, begin, end);
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (std::memcmp(&buffer[i], &wanted[i], sizeof(scalar_t)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << static_cast<std::int64_t>(i) - margin << " of [" << begin << ", " << end << ") is "
             << static_cast<double>(buffer[i]) << " instead of " << static_cast<double>(wanted[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

Runs one_run(std::uint64_t seed, std::int64_t start, std::int64_t length, std::int64_t chunk_size,
             std::int64_t features) {
  Runs runs;
  runs.seed.value = seed;
  runs.start.value = start;
  runs.count = 1;
  runs.length = length;
  runs.chunk_size = chunk_size;
  runs.features = features;
  return runs;
}

// Sizes at the seams of blocks (16), of the state (624 words; 397 and 227 in its recurrence) and of whole states.
constexpr std::int64_t draw_sizes[] = {1,   2,   3,    4,    7,    15,   16,   17,   31,   32,  33,  40,
                                       47,  48,  63,   64,   100,  213,  224,  227,  228,  240, 311, 312,
                                       313, 327, 328,  396,  397,  398,  607,  608,  623,  624, 625, 639,
                                       640, 641, 1000, 1247, 1248, 1249, 4096, 5000, 20000};

template <class scalar_t>
class CpuKernelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!reference_is_vectorised()) {
      GTEST_SKIP() << "ATen runs without AVX2";
    }
  }

  template <class Check>
  void for_each_kernel(Check&& check) {
    for (const InstructionSet set : supported_instruction_sets()) {
      for (const double stdv : {1.0, inverse_sqrt2}) {
        SCOPED_TRACE(std::string(set == InstructionSet::avx2 ? "avx2" : "avx512") + ", stdv " + std::to_string(stdv));
        check(select_kernels(set, half_arithmetic), stdv);
        if (::testing::Test::HasFailure()) {
          return;
        }
      }
    }
  }

  std::mt19937_64 random_{20240229};
  std::int64_t random(std::int64_t begin, std::int64_t end) {
    return std::uniform_int_distribution<std::int64_t>(begin, end - 1)(random_);
  }
};

using ScalarTypes = ::testing::Types<float, double, c10::BFloat16, c10::Half>;
TYPED_TEST_SUITE(CpuKernelTest, ScalarTypes, );

TYPED_TEST(CpuKernelTest, DrawsOfEverySize) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    Reference<TypeParam> reference(stdv);
    for (const std::int64_t numel : draw_sizes) {
      // Three chunks and a part of a fourth.
      const Runs runs = one_run(numel, 0, 3 * numel + (numel + 1) / 2, numel, 1);
      ASSERT_TRUE(fills(kernels, runs, stdv, 0, runs.numel(), reference.destination(runs))) << "draw of " << numel;
    }
  });
}

TYPED_TEST(CpuKernelTest, EveryWindowOfSmallDraws) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    Reference<TypeParam> reference(stdv);
    for (const std::int64_t numel : {1, 5, 15, 16, 17, 31, 32, 33, 47, 50}) {
      const Runs runs = one_run(3, 0, numel, numel, 1);
      const std::vector<TypeParam> expected = reference.destination(runs);
      for (std::int64_t begin = 0; begin < numel; ++begin) {
        for (std::int64_t end = begin + 1; end <= numel; ++end) {
          ASSERT_TRUE(fills(kernels, runs, stdv, begin, end, expected)) << "draw of " << numel;
        }
      }
    }
  });
}

TYPED_TEST(CpuKernelTest, WindowsOfLargerDraws) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    Reference<TypeParam> reference(stdv);
    for (const std::int64_t numel : draw_sizes) {
      const Runs runs = one_run(numel + 1, 0, 2 * numel + 1, numel, 1);
      const std::vector<TypeParam> expected = reference.destination(runs);
      for (int repeat = 0; repeat < 20; ++repeat) {
        // Half of the windows are short: decoding.
        const std::int64_t begin = this->random(0, runs.numel());
        const std::int64_t longest = repeat % 2 == 0 ? runs.numel() : std::min(runs.numel(), begin + 40);
        const std::int64_t end = this->random(begin, longest) + 1;
        ASSERT_TRUE(fills(kernels, runs, stdv, begin, end, expected)) << "draw of " << numel;
      }
    }
  });
}

// Runs with seeds and starts of their own, in numbers that are no multiples of the kernels' lanes.
TYPED_TEST(CpuKernelTest, ManyRuns) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    Reference<TypeParam> reference(stdv);
    for (const std::int64_t count : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100}) {
      for (const std::int64_t features : {1, 3, 16, 24, 100}) {
        for (const std::int64_t chunk_size : {1, 2, 7, 16, 50}) {
          Runs runs = one_run(0, 0, this->random(1, 4), chunk_size, features);
          std::vector<std::uint64_t> seeds;
          std::vector<std::int64_t> starts;
          for (std::int64_t run = 0; run < count; ++run) {
            seeds.push_back(static_cast<std::uint64_t>(this->random(0, 5)) * 0x123456789ABCDEFu);
            starts.push_back(this->random(0, 3 * chunk_size));
          }
          runs.count = count;
          runs.seed.data = seeds.data();
          runs.start.data = starts.data();
          const std::vector<TypeParam> expected = reference.destination(runs);
          ASSERT_TRUE(fills(kernels, runs, stdv, 0, runs.numel(), expected));
          const std::int64_t begin = this->random(0, runs.numel());
          const std::int64_t end = this->random(begin, runs.numel()) + 1;
          ASSERT_TRUE(fills(kernels, runs, stdv, begin, end, expected))
              << count << " runs, " << features << " features, chunk size " << chunk_size;
        }
      }
    }
  });
}

TYPED_TEST(CpuKernelTest, EmptyWindow) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    const Runs runs = one_run(0, 0, 4, 2, 8);
    const std::vector<TypeParam> expected(static_cast<std::size_t>(runs.numel()));
    ASSERT_TRUE(fills(kernels, runs, stdv, 5, 5, expected));
  });
}

// Wrong arithmetic for a half type differs in one element of thousands.
TYPED_TEST(CpuKernelTest, AMillionElements) {
  this->for_each_kernel([&](const Kernels& kernels, double stdv) {
    Reference<TypeParam> reference(stdv);
    const Runs runs = one_run(11, 0, 1 << 13, 1 << 10, 1 << 7);
    ASSERT_TRUE(fills(kernels, runs, stdv, 0, runs.numel(), reference.destination(runs)));
  });
}

// The word that temper() takes to `output`.
std::uint32_t untemper(std::uint32_t output) {
  output ^= output >> 18;
  output ^= output << 15 & 0xEFC60000u;
  std::uint32_t word = output;
  for (int i = 0; i < 5; ++i) {
    word = output ^ (word << 7 & 0x9D2C5680u);
  }
  output = word;
  for (int i = 0; i < 3; ++i) {
    word = output ^ word >> 11;
  }
  return word;
}

// All of a state's words are put into ATen's generator and into the kernel's transform.
class TransformTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!reference_is_vectorised()) {
      GTEST_SKIP() << "ATen runs without AVX2";
    }
  }

  // Compares for all u1 = 1 - i / 2^24 with u2 = `other` / 2^24, or the other way round.
  void compare_all(bool all_u1, std::uint32_t other) {
    constexpr int blocks = mt19937::state_words / 16;
    constexpr std::uint32_t uniforms = 1u << 24;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>();
    auto* implementation = at::check_generator<at::CPUGeneratorImpl>(generator);
    at::Tensor expected = at::empty({blocks * 16});
    std::vector<float> got(blocks * 16);
    const std::vector<InstructionSet> sets = supported_instruction_sets();
    at::mt19937 engine;
    at::mt19937_data_pod state = engine.data();
    for (std::uint32_t first = 0; first < uniforms; first += blocks * 8) {
      for (std::uint32_t i = 0; i < blocks * 8; ++i) {
        const std::uint32_t moving = std::min(first + i, uniforms - 1);
        std::uint32_t* block = state.state_.data() + i / 8 * 16 + i % 8;
        block[all_u1 ? 0 : 8] = untemper(moving);
        block[all_u1 ? 8 : 0] = untemper(other);
      }
      state.next_ = 0;
      state.left_ = mt19937::state_words + 1;
      engine.set_data(state);
      implementation->set_engine(engine);
      expected.normal_(0.0, 1.0, generator);
      for (const InstructionSet set : sets) {
        select_kernels(set, half_arithmetic).transform(state.state_.data(), blocks, 1.0, got.data());
        ASSERT_EQ(std::memcmp(got.data(), expected.const_data_ptr<float>(), got.size() * sizeof(float)), 0)
            << (all_u1 ? "u1" : "u2") << " near " << first;
      }
    }
  }
};

TEST(UntemperTest, InvertsTemper) {
  for (std::uint32_t i = 0; i < 100000; ++i) {
    ASSERT_EQ(mt19937::temper(untemper(i * 0x9E3779B9u)), i * 0x9E3779B9u);
  }
}

// At angle 0 the deviates are the radius itself and 0.
TEST_F(TransformTest, EveryRadius) { compare_all(true, 0); }

// With the radius a little above 1 no two neighbouring sines or cosines of one binade give the same deviate.
TEST_F(TransformTest, EveryAngle) {
  const double u1 = std::exp(-0.5);
  compare_all(false, static_cast<std::uint32_t>((1.0 - u1) * 0x1p24) + 1);
}

}  // namespace
}  // namespace chunked_noise::cpu

#endif

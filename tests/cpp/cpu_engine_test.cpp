// Kernels with one wrong bit are refused by the check, with a warning, and the values stay right.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "aten/engine.h"
#include "cpu/engine.h"

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

namespace chunked_noise::cpu {
namespace {

const Kernels right = select_kernels(InstructionSet::avx2, HalfArithmetic::float_vector);

// Fills as the right kernels do, and then flips the lowest bit of one element far into the draw.
template <class scalar_t>
void flip_a_bit(const Segment* segments, int count, std::int64_t chunk_numel, double stdv, scalar_t* out) {
  right.of(scalar_t{})(segments, count, chunk_numel, stdv, out);
  for (int i = 0; i < count; ++i) {
    if (segments[i].begin <= 9000 && 9000 < segments[i].end) {
      auto* const bytes = reinterpret_cast<unsigned char*>(out + segments[i].destination + 9000 - segments[i].begin);
      bytes[0] ^= 1;
    }
  }
}

Request make_request(std::int64_t length, std::int64_t features, std::int64_t chunk_size) {
  Request request;
  request.runs.seed.value = 7;
  request.runs.count = 1;
  request.runs.length = length;
  request.runs.features = features;
  request.runs.chunk_size = chunk_size;
  return request;
}

class WarningCounter : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    if (warning.msg().find("chunked_noise") != std::string::npos) {  // not torch's own of complex32
      ++count;
      text = warning.msg();
    }
  }
  int count = 0;
  std::string text;
};

class CheckedKernelsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (at::get_cpu_capability() == "DEFAULT") {
      GTEST_SKIP() << "ATen computes otherwise at this capability";
    }
    c10::WarningUtils::set_warning_handler(&warnings_);
  }
  void TearDown() override { c10::WarningUtils::set_warning_handler(nullptr); }

  // Whether the kernels serve, after a fill whose values must be right in any case.
  static bool serves(CheckedKernels& kernels, at::ScalarType dtype) {
    const auto request = make_request(40, 500, 40);  // the wrong element would be in it
    const auto actual = at::empty({1, 40, 500}, dtype);
    const auto expected = at::empty({1, 40, 500}, dtype);
    kernels.fill(actual, request);
    aten::fill(expected, request);
    EXPECT_EQ(std::memcmp(actual.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()), 0) << dtype;
    return kernels.serve(dtype);
  }

  WarningCounter warnings_;
};

constexpr at::ScalarType dtypes[] = {at::kFloat,       at::kDouble,       at::kHalf,         at::kBFloat16,
                                     at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};

TEST_F(CheckedKernelsTest, RightKernelsServe) {
  CheckedKernels kernels(right);
  for (const auto dtype : dtypes) {
    EXPECT_TRUE(serves(kernels, dtype)) << dtype;
  }
  EXPECT_EQ(warnings_.count, 0) << warnings_.text;
}

// The first use of a dtype in several threads at once; ThreadSanitizer looks at it.
TEST_F(CheckedKernelsTest, ManyThreadsCheckAtOnce) {
  CheckedKernels kernels(right);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] { EXPECT_TRUE(serves(kernels, at::kFloat)); });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST_F(CheckedKernelsTest, OneWrongBitIsRefused) {
  Kernels wrong = right;
  wrong.float32 = flip_a_bit<float>;
  wrong.float64 = flip_a_bit<double>;
  wrong.bfloat16 = flip_a_bit<c10::BFloat16>;
  wrong.float16 = flip_a_bit<c10::Half>;
  CheckedKernels kernels(wrong);
  int expected_warnings = 0;
  for (const auto dtype : dtypes) {
    EXPECT_FALSE(serves(kernels, dtype)) << dtype;
    EXPECT_FALSE(serves(kernels, dtype)) << dtype;
    EXPECT_EQ(warnings_.count, ++expected_warnings) << "one warning a dtype";
  }
}

TEST_F(CheckedKernelsTest, OnlyTheWrongDtypeIsRefused) {
  Kernels wrong = right;
  wrong.float16 = flip_a_bit<c10::Half>;
  CheckedKernels kernels(wrong);
  EXPECT_TRUE(serves(kernels, at::kFloat));
  EXPECT_FALSE(serves(kernels, at::kHalf));
  EXPECT_NE(warnings_.text.find("Half"), std::string::npos) << warnings_.text;
}

// The variant of another torch version differs in about one element of ten thousand.
TEST_F(CheckedKernelsTest, AnotherHalfVariantIsRefused) {
  CheckedKernels kernels(select_kernels(InstructionSet::avx2, HalfArithmetic::float_libm));
  EXPECT_FALSE(serves(kernels, at::kHalf));
  EXPECT_FALSE(serves(kernels, at::kBFloat16));
}

}  // namespace
}  // namespace chunked_noise::cpu

#endif

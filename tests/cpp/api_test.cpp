// The C++ API as a C++ program uses it.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "chunked_noise/chunked_noise.h"

namespace chunked_noise {
namespace {

TEST(SampleChunkedNoise, EqualsADrawForEveryChunk) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    const auto noise = sample_chunked_noise({2, 10, 7}, ~std::uint64_t{0}, 4, at::kCPU, dtype);
    ASSERT_EQ(noise.sizes(), at::IntArrayRef({2, 10, 7}));
    for (std::int64_t chunk = 0; chunk < 3; ++chunk) {
      const auto generator = at::detail::createCPUGenerator(derive_chunk_seed(~std::uint64_t{0}, chunk));
      const auto drawn = at::randn({1, 4, 7}, generator, at::TensorOptions().dtype(dtype));
      const auto length = std::min<std::int64_t>(4, 10 - 4 * chunk);
      EXPECT_TRUE(at::equal(noise.narrow(1, 4 * chunk, length), drawn.narrow(1, 0, length).expand({2, length, 7})));
    }
  }
}

// The signature that C++ callers of the dispatcher write.
TEST(SampleChunkedNoise, OperatorHasTheTypedSignature) {
  const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("chunked_noise::sample_chunked_noise", "")
          .typed<at::Tensor(c10::SymIntArrayRef, c10::SymInt, c10::SymInt, c10::SymInt, at::Device, at::ScalarType)>();
  const std::vector<c10::SymInt> shape{1, 9, 3};
  EXPECT_TRUE(at::equal(op.call(shape, -1, 4, 2, at::kCPU, at::kFloat),
                        sample_chunked_noise({1, 9, 3}, ~std::uint64_t{0}, 4, at::kCPU, at::kFloat, 2)));
}

TEST(SampleChunkedNoise, Windows) {
  const auto whole = sample_chunked_noise({1, 40, 3}, 5, 8, at::kCPU, at::kFloat);
  const auto window = sample_chunked_noise({1, 11, 3}, 5, 8, at::kCPU, at::kFloat, /*start=*/6);
  EXPECT_TRUE(at::equal(window, whole.narrow(1, 6, 11)));
}

TEST(SampleChunkedNoise, Errors) {
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, 0, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, -3, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1}, 0, 1, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, -1}, 0, 1, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, INT64_MIN}, 0, 1, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({INT64_MIN, 1}, 0, 1, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, INT64_MIN, at::kCPU, at::kFloat), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, 1, at::kCPU, at::kFloat, -1), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, 1, at::kCPU, at::kFloat, INT64_MIN), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 2}, 0, 1, at::kCPU, at::kFloat, INT64_MAX), c10::ValueError);
  EXPECT_THROW(sample_chunked_noise({1, 0}, 0, 1, at::kCPU, at::kLong), c10::TypeError);
}

TEST(SampleChunkedNoise, RowsAndTokens) {
  const auto seeds = at::tensor({std::int64_t{7}, std::int64_t{-1}});
  const auto starts = at::tensor({std::int64_t{0}, std::int64_t{21}});
  const auto rows = sample_chunked_noise({2, 5, 3}, seeds, 8, at::kCPU, at::kFloat, starts);
  EXPECT_TRUE(at::equal(rows[1], sample_chunked_noise({1, 5, 3}, ~std::uint64_t{0}, 8, at::kCPU, at::kFloat, 21)[0]));
  EXPECT_TRUE(at::equal(gather_chunked_noise(starts, seeds, 8, {3}, at::kFloat), rows.select(1, 0)));
  auto out = at::zeros({2, 5, 3});
  fill_chunked_noise_(out, seeds, 8, starts);
  EXPECT_TRUE(at::equal(out, rows));
  fill_chunked_noise_(out, 7, 8, /*start=*/21);
  EXPECT_TRUE(at::equal(out, sample_chunked_noise({2, 5, 3}, 7, 8, at::kCPU, at::kFloat, 21)));
  EXPECT_THROW(fill_chunked_noise_(at::zeros({2, 5, 1}).expand({2, 5, 3}), 7, 8), c10::ValueError);
}

// Calls at the same time, large enough for threads of their own; ThreadSanitizer looks at them.
TEST(SampleChunkedNoise, ManyThreads) {
  const auto seeds = at::tensor({std::int64_t{9}, std::int64_t{7}});
  const auto starts = at::tensor({std::int64_t{3}, std::int64_t{0}});
  const auto call = [&](at::ScalarType dtype) {
    const auto shared = sample_chunked_noise({2, 300, 400}, 7, 8, at::kCPU, dtype);
    const auto rows = sample_chunked_noise({2, 300, 400}, seeds, 8, at::kCPU, dtype, starts);
    const auto tokens = gather_chunked_noise(starts, seeds, 8, {400}, dtype);
    EXPECT_TRUE(at::equal(rows[1], shared[0]));
    EXPECT_TRUE(at::equal(tokens, rows.select(1, 0)));
    EXPECT_TRUE(at::equal(padded_chunks(8, {shared})[1].tensors[0], shared.narrow(1, 8, 8)));
  };
  std::vector<std::thread> threads;
  for (const auto dtype : {at::kFloat, at::kFloat, at::kDouble, at::kHalf, at::kComplexFloat}) {
    threads.emplace_back(call, dtype);
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST(PaddedChunks, RebuildsTheSequence) {
  const auto x = at::randn({2, 11, 3});
  const auto mask = at::ones({1, 11}, at::kBool);
  auto out = at::zeros_like(x);
  std::int64_t count = 0;
  for (const PaddedChunk& chunk : padded_chunks(4, {x, mask})) {
    EXPECT_EQ(chunk.begin, 4 * count);
    EXPECT_EQ(chunk.tensors[0].sizes(), at::IntArrayRef({2, 4, 3}));
    EXPECT_EQ(chunk.tensors[1].sum().item<std::int64_t>(), chunk.end - chunk.begin);
    out.index_put_(chunk.index(), chunk.unpad(chunk.tensors[0]));
    ++count;
  }
  EXPECT_EQ(count, 3);
  EXPECT_TRUE(at::equal(out, x));
}

TEST(PaddedChunks, ViewsAndCopies) {
  auto x = at::zeros({1, 6, 1});
  const auto chunks = padded_chunks(4, {x});
  EXPECT_EQ(chunks.size(), 2);
  const PaddedChunk full = chunks[0];
  const PaddedChunk padded = chunks[1];
  EXPECT_TRUE(full.tensors[0].is_alias_of(x));
  EXPECT_FALSE(padded.tensors[0].is_alias_of(x));
  EXPECT_EQ(padded.unpad(padded.tensors[0]).size(1), 2);
}

TEST(PaddedChunks, Iterators) {
  const auto chunks = padded_chunks(4, {at::zeros({1, 6})});
  auto iterator = chunks.begin();
  EXPECT_TRUE(iterator == chunks.begin());
  EXPECT_FALSE(chunks.end() == iterator);
  iterator++;
  EXPECT_EQ((*iterator).begin, 4);
  EXPECT_TRUE(++iterator == chunks.end());
}

TEST(PaddedChunks, Errors) {
  const auto x = at::zeros({1, 6});
  EXPECT_THROW(padded_chunks(0, {x}), c10::ValueError);
  EXPECT_THROW(padded_chunks(2, {}), c10::ValueError);
  EXPECT_THROW(padded_chunks(2, {at::zeros({3})}), c10::ValueError);
  EXPECT_THROW(padded_chunks(2, {x, at::zeros({1, 5})}), c10::ValueError);
  EXPECT_THROW(padded_chunks(4, {x})[2], c10::IndexError);
  EXPECT_THROW(padded_chunks(4, {x})[0].unpad(x), c10::ValueError);
  EXPECT_THROW((PaddedChunk{4, 3, {}}.unpad(x)), c10::ValueError);
  EXPECT_THROW((PaddedChunk{0, 7, {}}.unpad(x)), c10::ValueError);
  EXPECT_EQ(padded_chunks(4, {at::zeros({1, 0})}).size(), 0);
  EXPECT_EQ(padded_chunks(4, {at::zeros({1, 8})}).size(), 2);
}

}  // namespace
}  // namespace chunked_noise

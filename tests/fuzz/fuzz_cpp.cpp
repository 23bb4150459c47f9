// Coverage-guided fuzzing of the C++ API: `make fuzz-cpp`. Any arguments may only give the documented draws, written
// where they belong and nowhere else, or a documented exception.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>
#include <vector>

#include "chunked_noise/chunked_noise.h"

// The library is compiled by GCC, whose kind of coverage libFuzzer refuses. So the linker gives its calls to us
// (--wrap), and libFuzzer reads our table of visited places. Operands of comparisons it takes, but for those of floats.
__attribute__((section("__libfuzzer_extra_counters"))) static std::uint8_t visited[1 << 16];
extern "C" void __wrap___sanitizer_cov_trace_pc() {
  const auto place = reinterpret_cast<std::uintptr_t>(__builtin_return_address(0));
  ++visited[(place ^ place >> 16) % sizeof(visited)];
}
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}

namespace {

using chunked_noise::derive_chunk_seed;

constexpr at::ScalarType kDtypes[] = {at::kFloat,         at::kDouble,        at::kHalf,        at::kBFloat16,
                                      at::kComplexFloat,  at::kComplexDouble, at::kComplexHalf, at::kLong,
                                      at::kFloat8_e4m3fn, at::kBool};
constexpr std::int64_t kMaxNumel = 20'000;  // what is drawn once more to compare

void require(bool condition, const std::source_location& place = std::source_location::current()) {
  if (!condition) {
    std::fprintf(stderr, "%s:%u: not so\n", place.function_name(), place.line());
    std::abort();
  }
}

// Arguments from the fuzzer's bytes.
class Source {
 public:
  Source(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  std::uint8_t byte() { return size_ == 0 ? 0 : (--size_, *data_++); }
  std::int64_t below(std::int64_t bound) { return byte() % bound; }

  std::int64_t any() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) {
      value = value << 8 | byte();
    }
    return static_cast<std::int64_t>(value);
  }

  // Mostly small; or around a power of two; or anything.
  std::int64_t integer(std::int64_t small) {
    const auto kind = below(12);
    if (kind < 9) {
      return below(small + 1);
    }
    if (kind == 9) {
      return static_cast<std::int64_t>((std::uint64_t{1} << below(64)) + static_cast<std::uint64_t>(below(5) - 2));
    }
    return kind == 10 ? any() : -below(small + 1);
  }

  std::vector<std::int64_t> shape(int max_dim) {
    std::vector<std::int64_t> sizes(below(max_dim + 1));
    for (auto& size : sizes) {
      size = integer(14);
    }
    return sizes;
  }

  // One value, or one for each row, or a wrong number of them.
  at::Tensor many(std::int64_t rows) {
    const auto kind = below(8);
    if (kind == 0) {
      return at::scalar_tensor(integer(200), at::kLong);
    }
    const auto values = at::empty(std::clamp<std::int64_t>(rows, 0, 64) + (kind == 1), at::kLong);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      values[i] = integer(200);
    }
    return kind == 2 ? values.to(at::kInt) : kind == 3 ? values.to(at::kFloat) : values;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

bool fits(at::IntArrayRef sizes, std::int64_t limit) {
  double product = 1;
  for (const auto size : sizes) {
    product *= static_cast<double>(std::max<std::int64_t>(size, 1));
  }
  return product <= static_cast<double>(limit);
}

// Whether a start is so far into its chunk that the documented walk to it takes long. A position has few features here.
bool is_far(const at::Tensor& starts, std::int64_t chunk_size) {
  return chunk_size > 0 && starts.scalar_type() != at::kFloat &&
         (starts.remainder(chunk_size) > (1 << 10)).any().item<bool>();
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const auto bytes = [](const at::Tensor& tensor) {
    const auto plain = tensor.contiguous().resolve_conj();
    return (plain.is_complex() ? at::view_as_real(plain) : plain).contiguous().view(at::kByte);
  };
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() && at::equal(bytes(a), bytes(b));
}

// The documented draws of one row (length, features...), or an undefined tensor where they would take long.
at::Tensor expected_row(at::IntArrayRef sizes, std::uint64_t seed, std::int64_t chunk_size, std::int64_t start,
                        at::ScalarType dtype) {
  std::vector<std::int64_t> chunk_shape{1, chunk_size};
  chunk_shape.insert(chunk_shape.end(), sizes.begin() + 1, sizes.end());
  const auto length = sizes[0];
  if (!fits(chunk_shape, kMaxNumel) || !fits(sizes, kMaxNumel)) {
    return {};
  }
  const auto result = at::empty(sizes, dtype);
  for (std::int64_t done = 0; done < length;) {
    const auto chunk = (start + done) / chunk_size;
    const auto offset = (start + done) % chunk_size;
    const auto count = std::min(chunk_size - offset, length - done);
    const auto generator = at::detail::createCPUGenerator(derive_chunk_seed(seed, chunk));
    const auto drawn = at::randn(chunk_shape, generator, at::TensorOptions().dtype(dtype));
    result.narrow(0, done, count).copy_(drawn[0].narrow(0, offset, count));
    done += count;
  }
  return result;
}

void compare_rows(const at::Tensor& noise, const at::Tensor& seeds, std::int64_t chunk_size, const at::Tensor& starts) {
  for (std::int64_t row = 0; row < std::min<std::int64_t>(noise.size(0), 64); ++row) {
    const auto of = [&](const at::Tensor& values) {
      return (values.dim() == 0 ? values : values[row]).item<std::int64_t>();
    };
    const auto expected = expected_row(noise[row].sizes(), static_cast<std::uint64_t>(of(seeds)), chunk_size,
                                       of(starts), noise.scalar_type());
    require(!expected.defined() || same_bits(noise[row], expected));
  }
}

void sample(Source& source) {
  const auto shape = source.shape(4);
  const auto chunk_size = source.integer(40);
  const auto dtype = kDtypes[source.below(std::size(kDtypes))];
  const auto seed = source.many(shape.empty() ? 0 : shape[0]);
  const auto start = source.many(shape.empty() ? 0 : shape[0]);
  if (!fits(shape, 1 << 20) || is_far(start, chunk_size)) {
    return;  // allocating it is torch's business
  }
  const auto noise =
      seed.dim() == 0 && start.dim() == 0
          ? chunked_noise::sample_chunked_noise(shape, static_cast<std::uint64_t>(seed.item<std::int64_t>()),
                                                chunk_size, at::kCPU, dtype, start.item<std::int64_t>())
          : chunked_noise::sample_chunked_noise(shape, seed, chunk_size, at::kCPU, dtype, start);
  require(noise.sizes() == shape);
  compare_rows(noise, seed, chunk_size, start);
}

void gather(Source& source) {
  const auto count = source.below(40);
  const auto positions = source.many(count);
  const auto seeds = source.many(count);
  const auto chunk_size = source.integer(40);
  const auto features = source.shape(2);
  const auto dtype = kDtypes[source.below(std::size(kDtypes))];
  if (!fits(features, 1 << 12) || is_far(positions, chunk_size)) {
    return;
  }
  const auto noise = chunked_noise::gather_chunked_noise(positions, seeds, chunk_size, features, dtype);
  compare_rows(noise.unsqueeze(1), seeds, chunk_size, positions);
}

// Into any view of a piece of memory: what is not in the view keeps its bytes.
void fill(Source& source) {
  const auto dtype = kDtypes[source.below(std::size(kDtypes))];
  std::vector<std::int64_t> shape(source.below(5));
  std::vector<std::int64_t> strides;
  std::int64_t reach = source.below(4);
  const auto offset = reach;
  for (auto& size : shape) {
    size = source.below(10);
    strides.push_back(source.below(60));
    reach += std::max<std::int64_t>(size - 1, 0) * strides.back();
  }
  const auto memory = at::ones(reach + 1 + source.below(4), dtype);
  const auto out = memory.as_strided(shape, strides, offset);
  const auto before = memory.clone();
  const auto chunk_size = source.integer(40);
  const auto rows = shape.empty() ? 0 : shape[0];
  const auto seed = source.many(rows);
  const auto start = source.many(rows);
  if (is_far(start, chunk_size)) {
    return;
  }
  try {
    if (seed.dim() == 0 && start.dim() == 0) {
      chunked_noise::fill_chunked_noise_(out, static_cast<std::uint64_t>(seed.item<std::int64_t>()), chunk_size,
                                         start.item<std::int64_t>());
    } else {
      chunked_noise::fill_chunked_noise_(out, seed, chunk_size, start);
    }
  } catch (const c10::Error&) {
    require(same_bits(memory, before));
    throw;
  }
  compare_rows(out, seed, chunk_size, start);
  out.fill_(1);
  require(same_bits(memory, before));
}

void split(Source& source) {
  std::vector<at::Tensor> tensors;
  for (auto count = source.below(4); count > 0; --count) {
    std::vector<std::int64_t> shape(source.below(5));
    for (auto& size : shape) {
      size = source.below(12);
    }
    tensors.push_back(at::ones(shape, kDtypes[source.below(std::size(kDtypes))]));
  }
  const auto chunk_size = source.integer(20);
  if (chunk_size > 1 << 10) {
    return;  // the padding would be real
  }
  const auto chunks = chunked_noise::padded_chunks(chunk_size, tensors);
  std::int64_t position = 0;
  for (const auto& chunk : chunks) {
    require(chunk.begin == position && chunk.end > position && chunk.end - position <= chunk_size);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      require(same_bits(chunk.unpad(chunk.tensors[i]), tensors[i].narrow(1, position, chunk.end - position)));
      require(chunk.tensors[i].size(1) == chunk_size);
    }
    position = chunk.end;
  }
  require(position == tensors[0].size(1));
  chunks[source.integer(20)];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool quiet = [] {
    at::set_num_threads(1);
    return true;
  }();
  (void)quiet;
  Source source(data, size);
  constexpr void (*functions[])(Source&) = {sample, gather, fill, split};
  try {
    functions[source.below(std::size(functions))](source);
  } catch (const c10::Error& error) {
    require(std::string(error.what_without_backtrace()).find("INTERNAL ASSERT") == std::string::npos);
  }
  return 0;
}

#include "cpu/engine.h"

#include <ATen/Version.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/util/env.h>
#include <torch/library.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "aten/engine.h"
#include "ops/checks.h"
#include "ops/engines.h"
#include "ops/parallel.h"
#include "ops/registration.h"

namespace chunked_noise::cpu {
namespace {

// Set to "aten", it turns the kernels off.
bool forced_aten() {
  static const bool forced = c10::utils::get_env("CHUNKED_NOISE_ENGINE") == "aten";
  return forced;
}

}  // namespace

#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__)

namespace {

constexpr HalfArithmetic half_arithmetic =
    TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 11   ? HalfArithmetic::rounded
    : TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 12 ? HalfArithmetic::float_libm
                                                            : HalfArithmetic::float_vector;

// Calls function(scalar_t{}) for the real type of `dtype`.
template <class Function>
auto with_real_type(at::ScalarType dtype, const Function& function) {
  switch (c10::toRealValueType(dtype)) {
    case at::kFloat:
      return function(float{});
    case at::kDouble:
      return function(double{});
    case at::kBFloat16:
      return function(c10::BFloat16{});
    default:
      TORCH_INTERNAL_ASSERT(c10::toRealValueType(dtype) == at::kHalf);
      return function(c10::Half{});
  }
}

// How many nanoseconds the request takes, roughly, on one thread: what is worth a second one.
double estimate_cost(const Runs& runs, bool slow) {
  constexpr double seeding = 80;    // a generator
  constexpr double walking = 0.08;  // a word of its state
  const auto numel = static_cast<double>(runs.numel());
  const double segments = numel / static_cast<double>(std::min(runs.chunk_numel(), runs.length * runs.features));
  double cost = numel * (slow || runs.chunk_numel() < 16 ? 20 : 1) + segments * seeding;
  if (runs.count > 1) {  // the walk of one run cannot be shared
    for (std::int64_t run = 0; run < runs.count; ++run) {
      cost += walking * static_cast<double>(runs.start[run] % runs.chunk_size * runs.features);
    }
  }
  return cost;
}

// The runs of a request, sorted by seed and position: those that share draws become neighbours, and the kernels walk
// each draw once. Requests whose runs are in order, as most are, are left as they are.
class SortedRuns {
 public:
  explicit SortedRuns(const Runs& runs) : runs_(runs) {
    const auto before = [&](std::int64_t a, std::int64_t b) {
      return std::pair(runs.seed[a], runs.start[a]) < std::pair(runs.seed[b], runs.start[b]);
    };
    bool sorted = true;
    for (std::int64_t run = 1; run < runs.count && sorted; ++run) {
      sorted = !before(run, run - 1);
    }
    if (sorted) {
      return;
    }
    rows_.resize(static_cast<std::size_t>(runs.count));
    std::iota(rows_.begin(), rows_.end(), 0);
    std::sort(rows_.begin(), rows_.end(), before);
    seeds_.reserve(rows_.size());
    starts_.reserve(rows_.size());
    for (const std::int64_t row : rows_) {
      seeds_.push_back(runs.seed[row]);
      starts_.push_back(runs.start[row]);
    }
    runs_.seed.data = seeds_.data();
    runs_.start.data = starts_.data();
  }
  SortedRuns(const SortedRuns&) = delete;
  SortedRuns& operator=(const SortedRuns&) = delete;

  const Runs& runs() const { return runs_; }
  const std::int64_t* rows() const { return rows_.empty() ? nullptr : rows_.data(); }

 private:
  Runs runs_;
  std::vector<std::uint64_t> seeds_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int64_t> rows_;
};

// The state of a generator is walked to where a run starts in its chunk: seconds at 2^36 words, and for ever at 2^60.
void check_walk(const Runs& runs) {
  constexpr std::int64_t max_walk = std::int64_t{1} << 36;
  const auto check = [&](std::int64_t start) {
    const std::int64_t position = start % runs.chunk_size;
    TORCH_CHECK_VALUE(position <= max_walk / runs.features, "position ", start, " lies ", position,
                      " positions into its chunk, and a CPU generator would have to walk through the numbers of all of "
                      "them: use a smaller chunk_size than ",
                      runs.chunk_size);
  };
  if (runs.start.data == nullptr) {
    check(runs.start.value);
    return;
  }
  std::for_each(runs.start.data, runs.start.data + runs.count, check);
}

void fill_with(const Kernels& kernels, const at::Tensor& out, const Request& request) {
  const Request host = request.to(at::kCPU);
  Runs runs = host.runs;
  double stdv = 1;
  if (out.is_complex()) {  // as ATen does: the parts are real numbers that share the variance
    runs.features *= 2;
    stdv = 1 / std::sqrt(2.0);
  }
  check_walk(runs);
  constexpr double grain_ns = 50000;  // what a thread must have to do
  const bool slow =
      c10::toRealValueType(out.scalar_type()) == at::kDouble || half_arithmetic != HalfArithmetic::float_vector;
  const SortedRuns sorted(runs);
  const double grain = static_cast<double>(runs.numel()) * grain_ns / estimate_cost(runs, slow);
  with_real_type(out.scalar_type(), [&](auto real) {
    auto* const data = static_cast<decltype(real)*>(out.mutable_data_ptr());
    parallel_for(0, runs.numel(), static_cast<std::int64_t>(grain) + 1, [&](std::int64_t begin, std::int64_t end) {
      cpu::fill(kernels, sorted.runs(), stdv, data, begin, end, sorted.rows());
    });
  });
}

// A request and the shape of its tensor: `length` positions of one run.
std::pair<std::vector<std::int64_t>, Request> make_probe(std::int64_t length, std::int64_t features,
                                                         std::int64_t chunk_size) {
  Request request;
  request.runs.seed.value = 0x5EED;
  request.runs.start.value = 1;
  request.runs.count = 1;
  request.runs.length = length;
  request.runs.features = features;
  request.runs.chunk_size = chunk_size;
  return {{1, length, features}, request};
}

// Compares the kernels with ATen: draws of every kind, and so many elements that even a variant which differs in one of
// ten thousand is seen.
bool equals_aten(const Kernels& kernels, at::ScalarType dtype) {
  const auto real = c10::toRealValueType(dtype);
  const std::int64_t many = real == at::kDouble ? 1 << 15 : real == at::kFloat ? 1 << 17 : 1 << 20;
  const std::pair<std::vector<std::int64_t>, Request> probes[] = {
      make_probe(40, 3, 5),            // draws of fewer than 16 elements
      make_probe(100, 1, 33),          // a tail
      make_probe(50, 17, 40),          // one that goes past the first state
      make_probe(many / 64, 64, 256),  // whole blocks
  };
  for (const auto& [shape, request] : probes) {
    const auto options = at::TensorOptions().dtype(dtype);
    const at::Tensor expected = at::empty(shape, options);
    const at::Tensor actual = at::empty(shape, options);
    aten::fill(expected, request);
    fill_with(kernels, actual, request);
    if (std::memcmp(actual.const_data_ptr(), expected.const_data_ptr(), expected.nbytes()) != 0) {
      return false;
    }
  }
  return true;
}

// The kernels for this process, or none where ATen computes otherwise.
CheckedKernels* checked_kernels() {
  static const auto kernels = []() -> std::unique_ptr<CheckedKernels> {
    const std::string capability = at::get_cpu_capability();
    if (forced_aten() || (capability != "AVX2" && capability != "AVX512")) {
      return nullptr;
    }
    const auto instruction_set = capability == "AVX512" ? InstructionSet::avx512 : InstructionSet::avx2;
    return std::make_unique<CheckedKernels>(select_kernels(instruction_set, half_arithmetic));
  }();
  return kernels.get();
}

}  // namespace

bool CheckedKernels::serve(at::ScalarType dtype) {
  auto& verdict = verdicts_[static_cast<std::size_t>(dtype)];
  if (verdict == Verdict::unknown) {
    at::AutoDispatchBelowADInplaceOrView guard;
    // complex32 shares float16's kernels; to make a tensor of it would warn that it is experimental.
    const auto found =
        equals_aten(kernels_, dtype == at::kComplexHalf ? at::kHalf : dtype) ? Verdict::equal : Verdict::different;
    if (verdict.exchange(found) == Verdict::unknown && found == Verdict::different) {
      TORCH_WARN("chunked_noise: the CPU kernels for ", dtype, " differ from ATen's on this machine (torch ",
                 TORCH_VERSION, ", ", at::get_cpu_capability(), "); ATen draws instead: slower, and right");
    }
  }
  return verdict == Verdict::equal;
}

void CheckedKernels::fill(const at::Tensor& out, const Request& request) {
  if (serve(out.scalar_type())) {
    fill_with(kernels_, out, request);
  } else {
    aten::fill(out, request);
  }
}

void fill(const at::Tensor& out, const Request& request) {
  if (CheckedKernels* kernels = checked_kernels()) {
    kernels->fill(out, request);
  } else {
    aten::fill(out, request);
  }
}

namespace {

std::string describe(at::ScalarType dtype) {
  const std::string capability = at::get_cpu_capability();
  if (CheckedKernels* kernels = checked_kernels()) {
    return kernels->serve(dtype) ? "cpu: " + capability + " kernels, checked against aten"
                                 : "aten: the " + capability + " kernels differ from it on this machine";
  }
  return forced_aten() ? "aten: asked for by CHUNKED_NOISE_ENGINE"
                       : "aten: no kernels for the CPU capability " + capability;
}

}  // namespace

#else

void fill(const at::Tensor& out, const Request& request) { aten::fill(out, request); }

namespace {

std::string describe(at::ScalarType) {
  return forced_aten() ? "aten: asked for by CHUNKED_NOISE_ENGINE" : "aten: no kernels for this platform";
}

}  // namespace

#endif

namespace {

void warm_up(at::Device) {
  for (const at::ScalarType dtype : ops::noise_dtypes) {
    describe(dtype);  // it checks
  }
}

}  // namespace
}  // namespace chunked_noise::cpu

TORCH_LIBRARY_IMPL(chunked_noise, CPU, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  chunked_noise::ops::register_engine<chunked_noise::cpu::fill>(library);
  chunked_noise::ops::register_report({at::kCPU, chunked_noise::cpu::describe, chunked_noise::cpu::warm_up});
}

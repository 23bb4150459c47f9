#include <c10/cuda/CUDAFunctions.h>
#include <torch/library.h>

#include "aten/engine.h"
#include "cuda/engine.h"
#include "ops/engines.h"
#include "ops/registration.h"

#if defined(USE_ROCM)

// rocRAND's Box-Muller step takes other uniform numbers than curand's, so its bits are not those of ATen there.
namespace chunked_noise::cuda {

void fill(const at::Tensor& out, const Request& request) { aten::fill(out, request); }

void warm_up(at::Device /*device*/) {}

std::optional<bool> verified(at::Device /*device*/, at::ScalarType /*dtype*/) { return std::nullopt; }

}  // namespace chunked_noise::cuda

#else

#include <ATen/AccumulateType.h>
#include <ATen/Dispatch.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAMacros.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/env.h>
#include <torch/version.h>

#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

#include "cuda/tiles.h"

namespace chunked_noise::cuda {
namespace {

at::Device with_index(at::Device device) {
  return device.has_index() ? device : at::Device(device.type(), c10::cuda::current_device());
}

// T of core/philox.h, for the current device.
std::int64_t grid_threads() {
  const int device = c10::cuda::current_device();
  int processors = 0;
  int threads_per_processor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&threads_per_processor, cudaDevAttrMaxThreadsPerMultiProcessor, device));
  constexpr int aten_block_size = 256;
  return std::int64_t{processors} * (threads_per_processor / aten_block_size) * aten_block_size;
}

template <int width, class Tiles, class Scalar, class Real>
__global__ void __launch_bounds__(block_size) fill_kernel(const __grid_constant__ Tiles tiles, Real std, Scalar* out) {
  tiles.for_each_unit(blockIdx.x, threadIdx.x,
                      [&](const Unit& unit) { fill_unit<width>(unit, tiles.threads(), std, out); });
}

template <int width, class Scalar, class Real>
void launch(const Runs& runs, Real std, Scalar* out) {
  const auto launch_tiles = [&](const auto& tiles) {
    TORCH_CHECK(tiles.blocks() <= std::numeric_limits<int>::max(), "noise of ", runs.numel(), " values is too large");
    const auto kernel = fill_kernel<width, std::decay_t<decltype(tiles)>, Scalar, Real>;
    kernel<<<tiles.blocks(), block_size, 0, c10::cuda::getCurrentCUDAStream()>>>(tiles, std, out);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  };
  constexpr int lanes = Normal<Real>::lanes;
  const std::int64_t threads = grid_threads();
  if (runs.chunk_numel() > threads && runs.length * runs.features > threads) {
    launch_tiles(CounterTiles<lanes, width>(runs, threads));
  } else {
    launch_tiles(LinearTiles<lanes, width>(runs, threads));
  }
}

// Fills `out` on its device, which is the current one. Only for draws that are 32-bit indexable.
void launch(const at::Tensor& out, const Request& request) {
  const Request on_device = request.to(out.device());
  Runs runs = on_device.runs;
  at::Tensor real = out;
  double std = 1;
  if (out.is_complex()) {
    real = at::view_as_real(out);
    runs.features *= 2;
    std = 1 / std::sqrt(2.0);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, real.scalar_type(), "fill_chunked_noise_cuda", [&] {
    using Real = at::acc_type<scalar_t, /*is_cuda=*/true>;
    constexpr int width = 16 / sizeof(Real);
    auto* const data = real.mutable_data_ptr<scalar_t>();
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % (width * sizeof(scalar_t)) == 0;
    if (aligned && runs.features % width == 0) {
      launch<width>(runs, static_cast<Real>(std), data);
    } else {
      launch<1>(runs, static_cast<Real>(std), data);
    }
  });
}

// ATen draws a larger chunk in pieces, each with an offset of its own into the generator (TensorIterator).
bool is_32bit_indexable(const at::Tensor& out, const Runs& runs) {
  constexpr std::int64_t max = std::numeric_limits<std::int32_t>::max();
  const std::int64_t parts = out.is_complex() ? 2 : 1;
  const std::int64_t element_size = out.element_size() / parts;
  const std::int64_t max_numel = (max - 1) / element_size + 1;
  return runs.chunk_size <= max_numel / parts / runs.features;
}

// Says how the engine's bits differ from ATen's for one request on the current device; nothing if they do not.
std::string compare_with_aten(at::ScalarType dtype, const Runs& runs) {
  const at::Device device(at::kCUDA, c10::cuda::current_device());
  const auto draw = [&](auto&& engine) {
    const at::Tensor out = at::empty({runs.count, runs.length, runs.features}, at::device(device).dtype(dtype));
    engine(out, Request{runs, {}, {}});
    return (out.is_complex() ? at::view_as_real(out) : out).flatten();
  };
  const at::Tensor actual = draw([](const at::Tensor& out, const Request& request) { launch(out, request); });
  const at::Tensor expected = draw(aten::fill);
  const at::ScalarType bits = actual.element_size() == 2   ? at::kShort
                              : actual.element_size() == 4 ? at::kInt
                                                           : at::kLong;
  const at::Tensor differing = actual.view(bits).ne(expected.view(bits)).nonzero();
  if (differing.numel() == 0) {
    return {};
  }
  const auto first = differing[0].item<std::int64_t>();
  return c10::str(differing.size(0), " of ", actual.numel(), " values of ", dtype, " noise with ", runs.features,
                  " features and chunk size ", runs.chunk_size, " differ, the first at ", first, ": ",
                  actual[first].item<double>(), " instead of ", expected[first].item<double>());
}

// Says how the engine's bits differ from ATen's on the current device; nothing if they do not.
std::string self_check(at::ScalarType dtype) {
  const std::int64_t threads = grid_threads();
  const struct {
    std::int64_t features, chunk_size, start, length;
  } cases[] = {
      {5 * threads + 4, 1, 3, 1},                          // counters with all their lanes, aligned
      {4 * threads + 3, 1, 0, 1},                          // and not
      {256, 3 * threads / 256, 2 * threads / 256 - 1, 3},  // a window into a large chunk
      {4096, 4, 3, 70},                                    // small chunks, over their borders
      {15, 2, 1, 100},                                     // the same, not aligned
  };
  for (const auto& [features, chunk_size, start, length] : cases) {
    Runs runs;
    runs.seed.value = 0x8000'0001'0000'0001;
    runs.start.value = start;
    runs.count = 1;
    runs.length = length;
    runs.chunk_size = chunk_size;
    runs.features = features;
    std::string difference = compare_with_aten(dtype, runs);
    if (!difference.empty()) {
      return difference;
    }
  }
  return {};
}

bool capturing() { return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None; }

enum class Verdict : unsigned char { unknown, equal, different };

// No lock: threads that check at the same time come to the same verdict, and a fork cannot leave one held.
std::atomic<Verdict>& verdict_of(c10::DeviceIndex device, at::ScalarType dtype) {
  static std::array<std::array<std::atomic<Verdict>, static_cast<std::size_t>(at::ScalarType::NumOptions)>,
                    C10_COMPILE_TIME_MAX_GPUS>
      verdicts{};
  // The kernels of complex32 are those of float16; to make a tensor of it would warn that it is experimental.
  return verdicts[device][static_cast<std::size_t>(dtype == at::kComplexHalf ? at::kHalf : dtype)];
}

// Whether the engine reproduces ATen on the current device: checked once for each dtype.
bool reproduces_aten(at::ScalarType dtype) {
  const c10::DeviceIndex device = c10::cuda::current_device();
  std::atomic<Verdict>& verdict = verdict_of(device, dtype);
  if (verdict == Verdict::unknown) {
    TORCH_CHECK(!capturing(), "chunked_noise has not yet compared its ", dtype, " noise on cuda:", int{device},
                " with torch.randn, and a graph capture does not allow it: call chunked_noise.warm_up(device) before");
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    // Lets this thread allocate and wait while another one captures.
    const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
    const std::string difference = self_check(dtype == at::kComplexHalf ? at::kHalf : dtype);
    const Verdict found = difference.empty() ? Verdict::equal : Verdict::different;
    if (verdict.exchange(found) == Verdict::unknown && found == Verdict::different) {
      TORCH_WARN("chunked_noise: the CUDA engine does not reproduce torch.randn on cuda:", int{device}, " (torch ",
                 TORCH_VERSION, "; ", difference, "); ATen draws chunk by chunk instead: slower, and right");
    }
  }
  return verdict == Verdict::equal;
}

// Why ATen has to serve a request; nothing if it has not.
std::string obstacle(const at::Tensor& out, const Runs& runs) {
  static const bool forced = c10::utils::get_env("CHUNKED_NOISE_ENGINE") == "aten";
  if (forced) {
    return "CHUNKED_NOISE_ENGINE=aten is set";
  }
  if (!is_32bit_indexable(out, runs)) {
    return c10::str("a chunk of ", runs.chunk_size, " positions of ", runs.features,
                    " features is over ATen's limit of 32-bit indexing");
  }
  if (!reproduces_aten(out.scalar_type())) {
    return "the CUDA engine does not reproduce torch.randn on this device";
  }
  return {};
}

}  // namespace

void fill(const at::Tensor& out, const Request& request) {
  const c10::cuda::CUDAGuard guard(out.device());
  const auto on_device = [](const at::Tensor& values) { return !values.defined() || values.is_cuda(); };
  TORCH_CHECK((on_device(request.seeds) && on_device(request.starts)) || !capturing(),
              "seeds and starts must be numbers, or tensors on the device of the noise, in a CUDA graph capture");
  if (const std::string reason = obstacle(out, request.runs); !reason.empty()) {
    TORCH_CHECK(!capturing(),
                "noise that ATen draws cannot be captured in a CUDA graph, and ATen has to draw this: ", reason);
    aten::fill(out, request);
    return;
  }
  launch(out, request);
}

void warm_up(at::Device device) {
  const c10::cuda::CUDAGuard guard(with_index(device));
  for (const at::ScalarType dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kComplexDouble}) {
    reproduces_aten(dtype);
  }
}

std::optional<bool> verified(at::Device device, at::ScalarType dtype) {
  const Verdict verdict = verdict_of(with_index(device).index(), dtype);
  return verdict == Verdict::unknown ? std::nullopt : std::optional(verdict == Verdict::equal);
}

}  // namespace chunked_noise::cuda

#endif  // USE_ROCM

namespace chunked_noise::cuda {
namespace {

// For the current device; asks the driver for the number of devices, and starts nothing.
std::string describe(at::ScalarType dtype) {
  if (c10::cuda::device_count() == 0) {
    return "cuda: built, and there is no device";
  }
  const std::optional<bool> verdict = verified(at::Device(at::kCUDA, 0), dtype);
  return !verdict   ? "cuda: to be checked against aten at the first use on cuda:0"
         : *verdict ? "cuda: checked against aten on cuda:0"
                    : "aten: the CUDA kernels differ from it on cuda:0";
}

}  // namespace
}  // namespace chunked_noise::cuda

TORCH_LIBRARY_IMPL(chunked_noise, CUDA, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  chunked_noise::ops::register_engine<chunked_noise::cuda::fill>(library);
  chunked_noise::ops::register_report({at::kCUDA, chunked_noise::cuda::describe, chunked_noise::cuda::warm_up});
}

#include "aten/engine.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <mutex>
#include <vector>

#include "ops/parallel.h"
#include "ops/registration.h"

namespace chunked_noise::aten {
namespace {

at::Generator make_generator(at::Device device) {
  if (device.is_cpu()) {
    return at::detail::createCPUGenerator();
  }
  return at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
}

// Fills elements [begin, end) of `out`, both of them starts of segments.
void fill_range(const at::Tensor& out, const Runs& runs, std::int64_t begin, std::int64_t end) {
  // A worker thread has none of the caller's thread-local state: without this guard an inference tensor could not be
  // written here.
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Generator generator = make_generator(out.device());
  std::vector<std::int64_t> chunk_shape(out.sizes().begin(), out.sizes().end());
  chunk_shape[0] = 1;
  chunk_shape[1] = runs.chunk_size;
  const at::Tensor flat = out.view({-1});
  at::Tensor scratch;

  const auto draw = [&](std::uint64_t seed, const at::Tensor& chunk) {
    {
      std::scoped_lock lock(generator.mutex());
      generator.set_current_seed(seed);  // as good as a new generator: it forgets all other state too
    }
    chunk.normal_(0.0, 1.0, generator);
  };

  for_each_segment(runs, begin, end, [&](const Segment& segment) {
    const at::Tensor destination = flat.narrow(0, segment.destination, segment.end - segment.begin);
    if (segment.end - segment.begin == runs.chunk_numel()) {
      draw(segment.chunk_seed, destination.view(chunk_shape));
      return;
    }
    if (!scratch.defined()) {
      scratch = at::empty(chunk_shape, out.options());
    }
    draw(segment.chunk_seed, scratch);
    destination.copy_(scratch.view({-1}).narrow(0, segment.begin, segment.end - segment.begin));
  });
}

}  // namespace

void fill(const at::Tensor& out, const Request& request) {
  const Request host = request.to(at::kCPU);
  const Runs& runs = host.runs;
  if (!out.device().is_cpu()) {
    fill_range(out, runs, 0, runs.numel());
    return;
  }
  constexpr std::int64_t grain = 32768;  // elements; about 100 us
  parallel_for(0, runs.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    // A chunk belongs to the worker in whose range it starts: it is drawn once.
    fill_range(out, runs, next_segment_start(runs, begin), next_segment_start(runs, end));
  });
}

}  // namespace chunked_noise::aten

// Every backend without an engine of its own.
TORCH_LIBRARY_IMPL(chunked_noise, CompositeExplicitAutograd, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  chunked_noise::ops::register_engine<chunked_noise::aten::fill>(library);
}

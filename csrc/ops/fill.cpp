// fill_chunked_noise_ around its engines: arguments become runs, and a tensor of any strides becomes a contiguous one.
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/checks.h"
#include "ops/engine.h"
#include "ops/registration.h"

namespace chunked_noise {
namespace {

// `starts` is a contiguous int64 tensor on a CPU.
void check_starts(const at::Tensor& starts, std::int64_t length) {
  const auto* values = starts.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < starts.numel(); ++row) {
    TORCH_CHECK_VALUE(values[row] >= 0, "positions must not be negative, got ", values[row], " in row ", row);
    TORCH_CHECK_VALUE(values[row] <= std::numeric_limits<std::int64_t>::max() - length,
                      "positions must be less than 2**63, got start ", values[row], " in row ", row, " and length ",
                      length);
  }
}

}  // namespace

Request Request::to(at::Device device) const {
  Request moved = *this;
  if (seeds.defined()) {
    moved.seeds = seeds.to(device);
    moved.runs.seed.data = reinterpret_cast<const std::uint64_t*>(moved.seeds.const_data_ptr<std::int64_t>());
  }
  if (starts.defined()) {
    moved.starts = starts.to(device);
    if (device.is_cpu() && !starts.is_cpu()) {
      check_starts(moved.starts, runs.length);  // nobody could look before
    }
    moved.runs.start.data = moved.starts.const_data_ptr<std::int64_t>();
  }
  return moved;
}

namespace ops {
namespace {

void check_self(const at::Tensor& self, const c10::SymInt& chunk_size, const c10::SymInt& start) {
  TORCH_CHECK_VALUE(self.layout() == at::kStrided && !self._is_zerotensor(),
                    "the tensor to fill must have memory of its own and strides, got layout ", self.layout());
  check_dtype(self.scalar_type());
  check_shape(self.sym_sizes());
  check_chunk_size(chunk_size);
  check_range(self.sym_sizes(), chunk_size, start, self.scalar_type());
}

// Whether two elements of the tensor may be one memory. A dimension whose stride does not step over all of the smaller
// ones counts, although some exotic layouts of this kind are free of overlap.
bool overlaps_itself(const at::Tensor& tensor) {
  if (tensor.numel() == 0) {
    return false;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> dimensions;  // stride, size
  for (std::int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) {
      dimensions.emplace_back(tensor.stride(i), tensor.size(i));
    }
  }
  std::sort(dimensions.begin(), dimensions.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dimensions) {
    if (stride <= reach) {
      return true;
    }
    reach += stride * (size - 1);
  }
  return false;
}

// Memory can be taken away from a tensor, as FSDP does, and torch itself does not look.
void check_storage(const at::Tensor& tensor, const char* name) {
  if (tensor.has_storage() && !tensor.is_meta() && !tensor.unsafeGetTensorImpl()->is_python_dispatch()) {
    const auto needed =
        at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.itemsize(), tensor.storage_offset());
    TORCH_CHECK_VALUE(tensor.storage().nbytes() >= needed, name, " has less memory than its shape ", tensor.sizes(),
                      " needs: ", tensor.storage().nbytes(), " of ", needed, " bytes");
  }
}

void check_memory(const at::Tensor& self) {
  check_storage(self, "the tensor to fill");
  TORCH_CHECK_VALUE(!overlaps_itself(self), "the tensor to fill must not overlap itself, got shape ", self.sizes(),
                    " and strides ", self.strides());
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto status = at::get_overlap_status(a, b);
  return status == at::MemOverlapStatus::TooHard ? a.is_alias_of(b) : status != at::MemOverlapStatus::No;
}

// One integer for each row of `self`, or one for all, as a contiguous int64 tensor. On a CPU it is a copy: another
// thread may write to the caller's while we check and sort it.
at::Tensor integers(const at::Tensor& self, const at::Tensor& values, const char* name) {
  check_per_row(values, self.sym_size(0), name);
  check_storage(values, name);
  TORCH_CHECK_VALUE(!overlap(self, values), "the tensor to fill and ", name, " must not overlap");
  return values.to(at::kLong, /*non_blocking=*/false, /*copy=*/values.is_cpu()).contiguous();
}

// Fills `target` (request.runs.count, length, features...), whatever its strides.
void fill_tensor(Engine* engine, const at::Tensor& target, Request request) {
  const auto features = target.sizes().slice(2);
  request.runs.length = target.size(1);
  request.runs.features =
      std::accumulate(features.begin(), features.end(), std::int64_t{1}, std::multiplies<std::int64_t>());
  if (target.is_contiguous() && !target.is_conj() && !target.is_neg()) {
    engine(target, request);
    return;
  }
  const at::Tensor contiguous = at::empty(target.sizes(), target.options());
  engine(contiguous, request);
  target.copy_(contiguous);
}

void fill_meta(at::Tensor& self, c10::SymInt /*seed*/, c10::SymInt chunk_size, c10::SymInt start) {
  check_self(self, chunk_size, start);
}

void fill_rows_meta(at::Tensor& self, const at::Tensor& seed, c10::SymInt chunk_size, const at::Tensor& start) {
  TORCH_CHECK_VALUE(self.is_meta(), "seed and start are on the device meta and have no values, the noise is on ",
                    self.device());
  check_self(self, chunk_size, 0);
  check_per_row(seed, self.sym_size(0), "seed");
  check_per_row(start, self.sym_size(0), "start");
}

const at::Tensor& fill_target(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return torch::jit::peek(stack, 0, op.schema().arguments().size()).toTensor();
}

// The noise has no gradient, and what it overwrites would lose its own.
void fill_autograd(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor& self = fill_target(op, *stack);
  TORCH_CHECK(!(at::GradMode::is_enabled() && self.requires_grad()) && !self._fw_grad(/*level=*/0).defined(),
              "noise cannot be written into a tensor that requires grad or has a tangent");
  at::AutoDispatchBelowAutograd guard;
  op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
}

// Makes the write visible to autograd, which remembers versions of tensors.
void fill_in_place(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor self = fill_target(op, *stack);
  {
    at::AutoDispatchBelowADInplaceOrView guard;
    op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
  }
  torch::autograd::increment_version(self);
}

// Registers one kernel for both overloads.
template <class MakeKernel>
void register_both(torch::Library& library, const MakeKernel& make_kernel) {
  if (first_copy()) {
    library.impl("fill_chunked_noise_", make_kernel());
    library.impl("fill_chunked_noise_.rows", make_kernel());
  }
}

}  // namespace

void fill(Engine* engine, at::Tensor& self, std::int64_t seed, std::int64_t chunk_size, std::int64_t start) {
  check_self(self, chunk_size, start);
  check_memory(self);
  if (self.numel() == 0) {
    return;
  }
  at::AutoDispatchBelowADInplaceOrView guard;
  Request request;
  request.runs.seed.value = static_cast<std::uint64_t>(seed);
  request.runs.start.value = start;
  request.runs.count = 1;
  request.runs.chunk_size = chunk_size;
  const at::Tensor first_row = self.narrow(0, 0, 1);
  fill_tensor(engine, first_row, request);
  if (self.size(0) > 1) {
    self.narrow(0, 1, self.size(0) - 1).copy_(first_row);
  }
}

void fill_rows(Engine* engine, at::Tensor& self, const at::Tensor& seed, std::int64_t chunk_size,
               const at::Tensor& start) {
  check_self(self, chunk_size, 0);
  check_memory(self);
  at::AutoDispatchBelowADInplaceOrView guard;
  Request request;
  request.seeds = integers(self, seed, "seed");
  request.starts = integers(self, start, "start");
  if (request.starts.is_cpu()) {  // elsewhere, looking would wait for the device
    check_starts(request.starts, self.size(1));
  }
  if (self.numel() == 0) {
    return;
  }
  request.runs.count = self.size(0);
  request.seeds = request.seeds.expand({self.size(0)}).contiguous();
  request.starts = request.starts.expand({self.size(0)}).contiguous();
  request.runs.chunk_size = chunk_size;
  fill_tensor(engine, self, request);
}

}  // namespace ops
}  // namespace chunked_noise

TORCH_LIBRARY_IMPL(chunked_noise, Meta, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("fill_chunked_noise_", &chunked_noise::ops::fill_meta);
  library.impl("fill_chunked_noise_.rows", &chunked_noise::ops::fill_rows_meta);
}

TORCH_LIBRARY_IMPL(chunked_noise, Autograd, library) {
  chunked_noise::ops::register_both(
      library, [] { return torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_autograd>(); });
}

TORCH_LIBRARY_IMPL(chunked_noise, ADInplaceOrView, library) {
  chunked_noise::ops::register_both(
      library, [] { return torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_in_place>(); });
}

// Torch's own fallbacks for views that conjugate or negate, and for tensors of zeros without memory, expect a mutated
// argument to be returned too.
TORCH_LIBRARY_IMPL(chunked_noise, Conjugate, library) {
  chunked_noise::ops::register_both(library, torch::CppFunction::makeFallthrough);
}

TORCH_LIBRARY_IMPL(chunked_noise, Negative, library) {
  chunked_noise::ops::register_both(library, torch::CppFunction::makeFallthrough);
}

TORCH_LIBRARY_IMPL(chunked_noise, ZeroTensor, library) {
  chunked_noise::ops::register_both(library, torch::CppFunction::makeFallthrough);
}

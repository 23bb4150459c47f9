// fill_chunked_noise_ around its engines, and the factories that are composites over it.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>
#include <torch/library.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <cstdint>
#include <limits>
#include <vector>

#include "chunked_noise/noise.h"
#include "ops/checks.h"
#include "ops/engine.h"
#include "ops/registration.h"

namespace chunked_noise {

Request Request::to(at::Device device) const {
  Request moved = *this;
  if (seeds.defined()) {
    moved.seeds = seeds.to(device);
    moved.runs.seed.data = reinterpret_cast<const std::uint64_t*>(moved.seeds.const_data_ptr<std::int64_t>());
  }
  if (starts.defined()) {
    moved.starts = starts.to(device);
    moved.runs.start.data = moved.starts.const_data_ptr<std::int64_t>();
  }
  return moved;
}

namespace ops {
namespace {

void check_self(const at::Tensor& self, const c10::SymInt& chunk_size, const c10::SymInt& start) {
  check_dtype(self.scalar_type());
  check_shape(self.sym_sizes());
  check_chunk_size(chunk_size);
  check_range(self.sym_sizes(), chunk_size, start, self.scalar_type());
}

// One integer for each of `rows` rows, as a contiguous int64 tensor; a single one serves all rows.
at::Tensor per_row(const at::Tensor& values, std::int64_t rows, const char* name) {
  TORCH_CHECK_TYPE(c10::isIntegralType(values.scalar_type(), /*includeBool=*/false), name,
                   " must be an integer tensor, got ", values.scalar_type());
  TORCH_CHECK_VALUE(values.numel() == 1 || (values.dim() == 1 && values.numel() == rows), name,
                    " must have one value a row (", rows, "), got shape ", values.sizes());
  return values.to(at::kLong).reshape({-1}).expand({rows}).contiguous();
}

void check_starts(const at::Tensor& starts, std::int64_t length) {
  if (!starts.device().is_cpu()) {
    return;  // looking would wait for the device
  }
  const auto* values = starts.const_data_ptr<std::int64_t>();
  for (std::int64_t row = 0; row < starts.numel(); ++row) {
    TORCH_CHECK_VALUE(values[row] >= 0, "start must not be negative, got ", values[row], " in row ", row);
    TORCH_CHECK_VALUE(values[row] <= std::numeric_limits<std::int64_t>::max() - length,
                      "positions must be less than 2**63, got start ", values[row], " in row ", row, " and length ",
                      length);
  }
}

// Fills `target` (request.runs.count, length, features...), whatever its strides.
void fill_tensor(Engine* engine, const at::Tensor& target, Request request) {
  request.runs.length = target.size(1);
  request.runs.features = 1;
  for (const std::int64_t size : target.sizes().slice(2)) {
    request.runs.features *= size;
  }
  if (target.is_contiguous()) {
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

void fill_rows_meta(at::Tensor& self, const at::Tensor& /*seed*/, c10::SymInt chunk_size, const at::Tensor& /*start*/) {
  check_self(self, chunk_size, 0);
}

const at::Tensor& fill_target(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  return torch::jit::peek(stack, 0, op.schema().arguments().size()).toTensor();
}

// The noise has no gradient, and what it overwrites would lose its own.
void fill_autograd(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  TORCH_CHECK(!(at::GradMode::is_enabled() && fill_target(op, *stack).requires_grad()),
              "noise cannot be written into a tensor that requires grad");
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

using FillOp = void(at::Tensor&, c10::SymInt, c10::SymInt, c10::SymInt);
using FillRowsOp = void(at::Tensor&, const at::Tensor&, c10::SymInt, const at::Tensor&);
using SampleOp = at::Tensor(c10::SymIntArrayRef, c10::SymInt, c10::SymInt, c10::SymInt, at::Device, at::ScalarType);

template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

// An empty tensor for noise. Nobody else has seen it, so autograd need not hear of what is done to it.
at::Tensor empty_noise(c10::SymIntArrayRef shape, at::Device device, at::ScalarType dtype) {
  at::Tensor noise = at::empty_symint(shape, at::TensorOptions().device(device).dtype(dtype));
#if defined(__linux__)
  // Touching new memory in pages of 4 KiB takes longer than drawing the noise.
  constexpr std::uintptr_t huge_page = std::uintptr_t{2} << 20;
  if (device.is_cpu() && noise.device().is_cpu() && !noise.unsafeGetTensorImpl()->is_python_dispatch() &&
      noise.storage().nbytes() >= 2 * huge_page) {
    const auto begin = reinterpret_cast<std::uintptr_t>(noise.mutable_data_ptr());
    const auto aligned = (begin + huge_page - 1) / huge_page * huge_page;
    madvise(reinterpret_cast<void*>(aligned), begin + noise.storage().nbytes() - aligned, MADV_HUGEPAGE);
  }
#endif
  return noise;
}

at::Tensor sample(c10::SymIntArrayRef shape, c10::SymInt seed, c10::SymInt chunk_size, c10::SymInt start,
                  at::Device device, at::ScalarType dtype) {
  static const auto fill_op = find_op<FillOp>("chunked_noise::fill_chunked_noise_");
  check_dtype(dtype);
  check_shape(shape);
  // All rows are equal: one is drawn and the others are the same memory.
  std::vector<c10::SymInt> drawn(shape.begin(), shape.end());
  drawn[0] = 1;
  check_chunk_size(chunk_size);
  check_range(shape, chunk_size, start, dtype);
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor noise = empty_noise(drawn, device, dtype);
  if (shape[0].maybe_as_int() != 0) {
    fill_op.call(noise, std::move(seed), std::move(chunk_size), std::move(start));
  }
  return shape[0].maybe_as_int() == 1 ? noise : noise.expand_symint(shape);
}

at::Tensor sample_rows(c10::SymIntArrayRef shape, const at::Tensor& seed, c10::SymInt chunk_size,
                       const at::Tensor& start, at::Device device, at::ScalarType dtype) {
  static const auto fill_op = find_op<FillRowsOp>("chunked_noise::fill_chunked_noise_", "rows");
  check_dtype(dtype);
  check_shape(shape);
  check_chunk_size(chunk_size);
  check_range(shape, chunk_size, 0, dtype);
  at::AutoDispatchBelowADInplaceOrView guard;
  at::Tensor noise = empty_noise(shape, device, dtype);
  fill_op.call(noise, seed, std::move(chunk_size), start);
  return noise;
}

}  // namespace

void fill(Engine* engine, at::Tensor& self, std::int64_t seed, std::int64_t chunk_size, std::int64_t start) {
  check_self(self, chunk_size, start);
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
  at::AutoDispatchBelowADInplaceOrView guard;
  Request request;
  request.seeds = per_row(seed, self.size(0), "seed");
  request.starts = per_row(start, self.size(0), "start");
  check_starts(request.starts, self.size(1));
  if (self.numel() == 0) {
    return;
  }
  request.runs.count = self.size(0);
  request.runs.chunk_size = chunk_size;
  fill_tensor(engine, self, request);
}

}  // namespace ops

at::Tensor sample_chunked_noise(at::IntArrayRef shape, std::uint64_t seed, std::int64_t chunk_size, at::Device device,
                                at::ScalarType dtype, std::int64_t start) {
  static const auto op = ops::find_op<ops::SampleOp>("chunked_noise::sample_chunked_noise");
  ops::check_shape(c10::fromIntArrayRefUnchecked(shape));
  return op.call(c10::fromIntArrayRefUnchecked(shape), static_cast<std::int64_t>(seed), chunk_size, start, device,
                 dtype);
}

}  // namespace chunked_noise

TORCH_LIBRARY_IMPL(chunked_noise, CompositeExplicitAutograd, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("sample_chunked_noise", &chunked_noise::ops::sample);
  library.impl("sample_chunked_noise.rows", &chunked_noise::ops::sample_rows);
}

TORCH_LIBRARY_IMPL(chunked_noise, Meta, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("fill_chunked_noise_", &chunked_noise::ops::fill_meta);
  library.impl("fill_chunked_noise_.rows", &chunked_noise::ops::fill_rows_meta);
}

TORCH_LIBRARY_IMPL(chunked_noise, Autograd, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("fill_chunked_noise_", torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_autograd>());
  library.impl("fill_chunked_noise_.rows",
               torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_autograd>());
}

TORCH_LIBRARY_IMPL(chunked_noise, ADInplaceOrView, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("fill_chunked_noise_", torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_in_place>());
  library.impl("fill_chunked_noise_.rows",
               torch::CppFunction::makeFromBoxedFunction<&chunked_noise::ops::fill_in_place>());
}

#include "ops/checks.h"

#include <c10/util/Exception.h>
#include <c10/util/safe_numerics.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>

namespace chunked_noise::ops {

void check_dtype(at::ScalarType dtype) {
  TORCH_CHECK_TYPE(std::find(std::begin(noise_dtypes), std::end(noise_dtypes), dtype) != std::end(noise_dtypes),
                   "dtype must be a floating-point or complex type that has a normal distribution, got ", dtype);
}

void check_shape(c10::SymIntArrayRef shape) {
  TORCH_CHECK_VALUE(shape.size() >= 2, "shape must have at least 2 dimensions (batch, sequence, ...), got ", shape);
  for (const c10::SymInt& size : shape) {
    TORCH_CHECK_VALUE(size.maybe_as_int().value_or(0) >= 0, "shape must not have a negative size, got ", shape);
  }
}

void check_chunk_size(const c10::SymInt& chunk_size) {
  TORCH_CHECK_VALUE(chunk_size.maybe_as_int().value_or(1) > 0, "chunk_size must be positive, got ", chunk_size);
}

void check_range(c10::SymIntArrayRef shape, const c10::SymInt& chunk_size, const c10::SymInt& start,
                 at::ScalarType dtype) {
  constexpr std::int64_t max = std::numeric_limits<std::int64_t>::max();
  const std::int64_t first = start.maybe_as_int().value_or(0);
  TORCH_CHECK_VALUE(first >= 0, "start must not be negative, got ", first);
  const std::int64_t length = shape[1].maybe_as_int().value_or(0);
  TORCH_CHECK_VALUE(first <= max - length, "positions must be less than 2**63, got start ", first, " and length ",
                    length);
  // Real numbers of a chunk draw; a zero-sized dimension anywhere makes it zero.
  std::uint64_t reals = c10::isComplexType(dtype) ? 2 : 1;
  bool overflow = c10::mul_overflows(reals, static_cast<std::uint64_t>(chunk_size.maybe_as_int().value_or(1)), &reals);
  bool empty = false;
  for (const c10::SymInt& size : shape.slice(2)) {
    const auto concrete = static_cast<std::uint64_t>(size.maybe_as_int().value_or(1));
    empty = empty || concrete == 0;
    overflow = c10::mul_overflows(reals, concrete, &reals) || overflow;
  }
  TORCH_CHECK_VALUE(empty || (!overflow && reals <= static_cast<std::uint64_t>(max)),
                    "a chunk must have less than 2**63 elements, got chunk_size ", chunk_size, " and feature shape ",
                    shape.slice(2));
}

void check_per_row(const at::Tensor& values, const c10::SymInt& rows, const char* name) {
  TORCH_CHECK_TYPE(c10::isIntegralType(values.scalar_type(), /*includeBool=*/false), name,
                   " must be an integer tensor, got ", values.scalar_type());
  TORCH_CHECK_VALUE(values.layout() == at::kStrided, name, " must be strided, got layout ", values.layout());
  TORCH_CHECK_VALUE(values.dim() <= 1, name, " must have one value a row, got shape ", values.sym_sizes());
  const auto count = values.dim() == 1 ? values.sym_size(0).maybe_as_int() : std::nullopt;
  const auto wanted = rows.maybe_as_int();
  TORCH_CHECK_VALUE(!count || !wanted || *count == *wanted, name, " must have one value a row, of which there are ",
                    rows, ", got shape ", values.sym_sizes());
}

}  // namespace chunked_noise::ops

// The checks of arguments, in one place for every caller: the operators, their meta kernels, C++ and Python.
//
// A symbolic integer of a trace is not checked (and so not guarded on): the compiled program calls the same operators
// with concrete ones.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymIntArrayRef.h>

namespace chunked_noise::ops {

// The dtypes that have a normal distribution.
constexpr at::ScalarType noise_dtypes[] = {at::kFloat,       at::kDouble,       at::kHalf,         at::kBFloat16,
                                           at::kComplexHalf, at::kComplexFloat, at::kComplexDouble};

void check_dtype(at::ScalarType dtype);

// `shape` is (batch, sequence, features...).
void check_shape(c10::SymIntArrayRef shape);

void check_chunk_size(const c10::SymInt& chunk_size);

// Every position and every element of a chunk draw fits a signed 64-bit integer. `shape` is checked already.
void check_range(c10::SymIntArrayRef shape, const c10::SymInt& chunk_size, const c10::SymInt& start,
                 at::ScalarType dtype);

// `values` is an integer tensor with one value for each row, or 0-dimensional.
void check_per_row(const at::Tensor& values, const c10::SymInt& rows, const char* name);

}  // namespace chunked_noise::ops

// The padding operators and the C++ range over padded chunks.
#include <ATen/ops/constant_pad_nd.h>
#include <c10/core/SymInt.h>
#include <torch/library.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "chunked_noise/chunking.h"
#include "ops/checks.h"
#include "ops/registration.h"

namespace chunked_noise {
namespace ops {
namespace {

void check_sequence(const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.layout() == at::kStrided && !tensor.is_nested(), "a tensor must be strided, got layout ",
                    tensor.layout(), tensor.is_nested() ? ", nested" : "");
  TORCH_CHECK_VALUE(tensor.dim() >= 2, "a tensor must have at least 2 dimensions (batch, sequence, ...), got shape ",
                    tensor.sym_sizes());
}

c10::SymInt chunk_count(const c10::SymInt& length, const c10::SymInt& chunk_size) {
  return length == 0 ? c10::SymInt(0) : (length - 1) / chunk_size + 1;
}

at::Tensor padded_chunk(const at::Tensor& self, c10::SymInt chunk_size, c10::SymInt index) {
  check_sequence(self);
  check_chunk_size(chunk_size);
  const c10::SymInt length = self.sym_size(1);
  TORCH_CHECK_INDEX(index >= 0 && index < chunk_count(length, chunk_size), "chunk index ", index,
                    " is out of range for sequence length ", length, " and chunk_size ", chunk_size);
  const c10::SymInt begin = index * chunk_size;
  const c10::SymInt size = chunk_size.min(length - begin);
  at::Tensor chunk = self.narrow_symint(1, begin, size);
  const c10::SymInt padding = chunk_size - size;
  if (padding == 0) {
    return chunk;
  }
  // constant_pad_nd counts dimensions from the last one: (before, after) of each, ending with dimension 1.
  std::vector<c10::SymInt> padding_of_dims(2 * (self.dim() - 1), 0);
  padding_of_dims.back() = padding;
  return at::constant_pad_nd_symint(chunk, padding_of_dims, 0);
}

std::vector<at::Tensor> padded_chunks(const at::Tensor& self, c10::SymInt chunk_size) {
  check_sequence(self);
  check_chunk_size(chunk_size);
  const std::int64_t count = chunk_count(self.sym_size(1), chunk_size).guard_int(__FILE__, __LINE__);
  std::vector<at::Tensor> chunks;
  chunks.reserve(count);
  for (std::int64_t index = 0; index < count; ++index) {
    chunks.push_back(padded_chunk(self, chunk_size, index));
  }
  return chunks;
}

}  // namespace
}  // namespace ops

std::vector<at::indexing::TensorIndex> PaddedChunk::index() const {
  return {at::indexing::Slice(), at::indexing::Slice(begin, end)};
}

at::Tensor PaddedChunk::unpad(const at::Tensor& tensor) const {
  ops::check_sequence(tensor);
  const std::int64_t chunk_size = tensors.empty() ? tensor.size(1) : tensors.front().size(1);
  TORCH_CHECK_VALUE(begin <= end && tensor.size(1) == chunk_size && end - begin <= chunk_size,
                    "dimension 1 of the tensor must be the chunk size ", chunk_size, ", got shape ", tensor.sizes());
  return tensor.narrow(1, 0, end - begin);
}

PaddedChunks::PaddedChunks(std::int64_t chunk_size, std::vector<at::Tensor> tensors)
    : chunk_size_(chunk_size), tensors_(std::move(tensors)) {
  ops::check_chunk_size(chunk_size);
  TORCH_CHECK_VALUE(!tensors_.empty(), "padded_chunks needs at least one tensor");
  for (const at::Tensor& tensor : tensors_) {
    ops::check_sequence(tensor);
    TORCH_CHECK_VALUE(tensor.size(1) == tensors_.front().size(1),
                      "all tensors must have the same sequence length, got ", tensors_.front().size(1), " and ",
                      tensor.size(1));
  }
}

std::int64_t PaddedChunks::size() const { return ops::chunk_count(tensors_.front().size(1), chunk_size_).expect_int(); }

PaddedChunk PaddedChunks::operator[](std::int64_t index) const {
  PaddedChunk chunk{0, 0, {}};
  chunk.tensors.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) {
    chunk.tensors.push_back(ops::padded_chunk(tensor, chunk_size_, index));
  }
  const std::int64_t length = tensors_.front().size(1);
  chunk.begin = index * chunk_size_;
  chunk.end = chunk.begin + std::min(chunk_size_, length - chunk.begin);
  return chunk;
}

PaddedChunks padded_chunks(std::int64_t chunk_size, std::vector<at::Tensor> tensors) {
  return {chunk_size, std::move(tensors)};
}

}  // namespace chunked_noise

// Composite, so that views, autograd, vmap and export see what is inside.
TORCH_LIBRARY_IMPL(chunked_noise, CompositeImplicitAutograd, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("padded_chunk", &chunked_noise::ops::padded_chunk);
  library.impl("padded_chunks", &chunked_noise::ops::padded_chunks);
}

// vmap and torch.func.functionalize do not find composite kernels of operators that return views by themselves.
TORCH_LIBRARY_IMPL(chunked_noise, FuncTorchBatchedDecomposition, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("padded_chunk", &chunked_noise::ops::padded_chunk);
  library.impl("padded_chunks", &chunked_noise::ops::padded_chunks);
}

TORCH_LIBRARY_IMPL(chunked_noise, Functionalize, library) {
  if (!chunked_noise::ops::first_copy()) {
    return;
  }
  library.impl("padded_chunk", &chunked_noise::ops::padded_chunk);
  library.impl("padded_chunks", &chunked_noise::ops::padded_chunks);
}

// The splitting of a sequence into chunks of one fixed size, the last one padded at the end.
#pragma once

#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <vector>

#include "chunked_noise/export.h"

namespace chunked_noise {

// One chunk of a sequence, padded at the end to the chunk size.
struct PaddedChunk {
  // The chunk's real positions in the sequence are [begin, end); end - begin < chunk_size only for a padded last chunk.
  std::int64_t begin;
  std::int64_t end;
  // The padded chunk of each tensor that was split, in the order they were given.
  std::vector<at::Tensor> tensors;

  // The index of the chunk's real positions in a tensor of the whole sequence: output.index_put_(chunk.index(), ...).
  CHUNKED_NOISE_API std::vector<at::indexing::TensorIndex> index() const;

  // A view of `tensor` (batch, chunk_size, ...) without the padded positions. Throws c10::ValueError for another size.
  CHUNKED_NOISE_API at::Tensor unpad(const at::Tensor& tensor) const;
};

// The chunks of some tensors as a range. A chunk is made when its iterator is dereferenced.
class CHUNKED_NOISE_API PaddedChunks {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = PaddedChunk;
    using difference_type = std::int64_t;
    using pointer = void;
    using reference = PaddedChunk;

    Iterator(const PaddedChunks* chunks, std::int64_t index) : chunks_(chunks), index_(index) {}
    PaddedChunk operator*() const { return (*chunks_)[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    void operator++(int) { ++index_; }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }
    bool operator!=(const Iterator& other) const { return index_ != other.index_; }

   private:
    const PaddedChunks* chunks_;
    std::int64_t index_;
  };

  PaddedChunks(std::int64_t chunk_size, std::vector<at::Tensor> tensors);

  std::int64_t size() const;
  PaddedChunk operator[](std::int64_t index) const;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size()}; }

 private:
  std::int64_t chunk_size_;
  std::vector<at::Tensor> tensors_;
};

// Splits tensors (batch, sequence, ...) of one sequence length into consecutive chunks of chunk_size positions.
//
// The last chunk is padded at the end with zeros (false for bool) and is a copy; the others are views.
// Throws c10::ValueError if chunk_size is not positive, there is no tensor, a tensor has fewer than two dimensions, or
// the sequence lengths differ.
CHUNKED_NOISE_API PaddedChunks padded_chunks(std::int64_t chunk_size, std::vector<at::Tensor> tensors);

}  // namespace chunked_noise

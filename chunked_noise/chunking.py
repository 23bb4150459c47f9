"""The splitting of a sequence into chunks of one fixed size."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ._arguments import as_int64


# Not comparable field by field: tensors have no single truth value.
@dataclass(frozen=True, eq=False)
class PaddedChunk:
    """One chunk of a sequence, padded at the end to the chunk size.

    Attributes:
        positions: The slice of the sequence's real positions in the chunk. It is shorter than the chunk size only
            where the last chunk is padded.
        tensors: The chunk of each tensor that was split, in the order given, each of shape (batch, chunk_size, ...).
    """

    positions: slice
    tensors: tuple[Tensor, ...]

    @property
    def index(self) -> tuple[slice, ...]:
        """The index of the real positions in a tensor of the whole sequence: `output[chunk.index] = ...`."""
        return (slice(None), self.positions)

    def unpad(self, tensor: Tensor) -> Tensor:
        """Returns a view of `tensor` without the padded positions.

        Args:
            tensor: A tensor of shape (batch, chunk_size, ...), any dtype, computed for this chunk.

        Returns:
            The view of shape (batch, number of real positions, ...).

        Raises:
            ValueError: If dimension 1 of `tensor` is not the chunk size.
            TypeError: If it is not a tensor.

        Example:
            >>> chunk = list(padded_chunks(4, torch.ones(1, 6, 2)))[-1]
            >>> chunk.unpad(chunk.tensors[0]).shape
            torch.Size([1, 2, 2])
        """
        if not isinstance(tensor, Tensor):
            raise TypeError(f"unpad takes a tensor, got {tensor!r}")
        length = self.positions.stop - self.positions.start
        chunk_size = self.tensors[0].shape[1] if self.tensors else length
        if tensor.dim() < 2 or tensor.shape[1] != chunk_size:
            raise ValueError(
                f"dimension 1 of the tensor must be the chunk size {chunk_size}, got shape {tuple(tensor.shape)}"
            )
        return tensor[:, :length]


def padded_chunks(chunk_size: int, *tensors: Tensor) -> Iterator[PaddedChunk]:
    """Splits tensors along dimension 1 into consecutive chunks of `chunk_size` positions, the last padded at the end.

    All chunks have one shape, so a computation that runs chunk by chunk meets the same shapes at every sequence
    length. Padding is 0, or False for bool. A chunk that needs no padding is a view of its tensor; a short last chunk
    is a copy. Gradients flow through both. Arguments are checked at the call; a chunk is made when it is asked for.

    Args:
        chunk_size: Positions per chunk, at least 1.
        *tensors: One or more tensors of shape (batch, sequence, ...) with one sequence length; batch, dtype, device
            and the other dimensions may differ.

    Returns:
        An iterator over the ceil(sequence / chunk_size) chunks, in order; none for an empty sequence.

    Raises:
        ValueError: If `chunk_size` is not positive, no tensor is given, a tensor has fewer than 2 dimensions or is
            nested, or the sequence lengths differ.
        TypeError: If `chunk_size` is not an integer or an argument is not a tensor.

    Example:
        >>> x = torch.arange(6.0).reshape(1, 6, 1)
        >>> out = torch.empty_like(x)
        >>> for chunk in padded_chunks(4, x):
        ...     out[chunk.index] = chunk.unpad(chunk.tensors[0] * 2)
        >>> out.flatten().tolist()
        [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    """
    chunk_size = as_int64(chunk_size, "chunk_size")
    if chunk_size <= 0:
        raise ValueError(f"chunk_size must be positive, got {chunk_size}")
    if not tensors:
        raise ValueError("padded_chunks needs at least one tensor, got none")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"padded_chunks splits tensors, got {tensor!r} of type {type(tensor).__name__}")
        if tensor.is_nested:
            raise ValueError("a tensor must be strided, got a nested one")
        if tensor.dim() < 2:
            raise ValueError(
                f"a tensor must have at least 2 dimensions (batch, sequence, ...), got shape {tuple(tensor.shape)}"
            )
    length = tensors[0].shape[1]
    for tensor in tensors[1:]:
        if tensor.shape[1] != length:
            raise ValueError(
                f"all tensors must have the same sequence length, got {[tensor.shape[1] for tensor in tensors]}"
            )
    return _iterate(chunk_size, length, tensors)


def _iterate(chunk_size: int, length: int, tensors: tuple[Tensor, ...]) -> Iterator[PaddedChunk]:
    for index, begin in enumerate(range(0, length, chunk_size)):
        yield PaddedChunk(
            slice(begin, min(begin + chunk_size, length)),
            tuple(torch.ops.chunked_noise.padded_chunk.default(tensor, chunk_size, index) for tensor in tensors),
        )

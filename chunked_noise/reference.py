"""The definition of everything in this package, in slow and plain PyTorch: read it first.

The compiled functions are tested against these bit for bit. `sample_chunked_noise` here is the loop that one would
write by hand: a generator, a seed and a draw for every chunk. Arguments are taken to be valid.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

MASK_32 = 2**32 - 1
MASK_64 = 2**64 - 1
GOLDEN_GAMMA = 0x9E3779B97F4A7C15


def mix64(z: int) -> int:
    """SplitMix64's finalizer (Steele, Lea, Flood, 2014)."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK_64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK_64
    return z ^ (z >> 31)


def fmix32(h: int) -> int:
    """MurmurHash3's 32-bit finalizer, a permutation of the 32-bit integers."""
    h = (h ^ (h >> 16)) * 0x85EBCA6B & MASK_32
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & MASK_32
    return h ^ (h >> 16)


def derive_chunk_seed(seed: int, chunk_index: int) -> int:
    """Returns the seed of the generator of chunk `chunk_index` of the noise with seed `seed`.

    The low half is a permutation of the low 32 bits of `chunk_index`, because a CPU generator keeps only 32 bits.
    """
    if not 0 <= chunk_index < 2**64:
        raise ValueError(f"chunk_index must be in [0, 2**64), got {chunk_index}")
    key = mix64((seed + GOLDEN_GAMMA) & MASK_64)
    high = mix64((key + GOLDEN_GAMMA * (chunk_index + 1)) & MASK_64) >> 32
    low = fmix32((fmix32((chunk_index ^ key) & MASK_32) + (key >> 32) + (chunk_index >> 32)) & MASK_32)
    return high << 32 | low


def sample_chunked_noise(
    shape: Sequence[int],
    *,
    seed: int,
    chunk_size: int,
    device: torch.device | str,
    dtype: torch.dtype,
    start: int = 0,
) -> Tensor:
    """Returns noise of `shape` (batch, sequence, ...) for the positions from `start` on; every row is the same."""
    if chunk_size <= 0:
        raise ValueError(f"chunk_size must be positive, got {chunk_size}")
    batch, length, *features = shape
    noise = torch.empty((1, length, *features), device=device, dtype=dtype)
    first_chunk, last_chunk = start // chunk_size, (start + length - 1) // chunk_size
    for index in range(first_chunk, last_chunk + 1):
        generator = torch.Generator(device).manual_seed(derive_chunk_seed(seed, index))
        chunk = torch.randn((1, chunk_size, *features), generator=generator, device=device, dtype=dtype)
        begin = max(start, index * chunk_size)
        end = min(start + length, (index + 1) * chunk_size)
        noise[:, begin - start : end - start] = chunk[:, begin - index * chunk_size : end - index * chunk_size]
    return noise.expand(batch, length, *features)


def padded_chunks(chunk_size: int, *tensors: Tensor) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    """Yields, chunk by chunk, the slice of real positions and each tensor's chunk, zero-padded to `chunk_size`."""
    length = tensors[0].shape[1]
    for begin in range(0, length, chunk_size):
        positions = slice(begin, min(begin + chunk_size, length))
        padded = []
        for tensor in tensors:
            chunk = torch.zeros(
                (tensor.shape[0], chunk_size, *tensor.shape[2:]), dtype=tensor.dtype, device=tensor.device
            )
            chunk[:, : positions.stop - begin] = tensor[:, positions]
            padded.append(chunk)
        yield positions, tuple(padded)

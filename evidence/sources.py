"""What is put to the test: our noise, two deliberately bad ways to make it, and plain `torch.randn` for comparison.

A source draws, for a seed, the first chunks of its sequence: a tensor of shape (chunks, POSITIONS, FEATURES).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from chunked_noise import derive_chunk_seed, sample_chunked_noise
from chunked_noise.reference import GOLDEN_GAMMA, fmix32, mix64

POSITIONS, FEATURES = 16, 64
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

# Neighbouring seeds and chunks from 0 on; those from FRESH on are for the second look at a test that failed.
FRESH = 2**40

Seeds = NDArray[np.uint64]


@dataclass(frozen=True)
class Source:
    """A way to make noise, and the seeds of its chunks' generators as a function of arrays (seed, chunk_index)."""

    name: str
    draw: Callable[[int, int, torch.dtype], Tensor]
    chunk_seeds: Callable[[Seeds, Seeds], Seeds] | None = None
    good: bool = True


def name_of(dtype: torch.dtype) -> str:
    """As in a table."""
    return str(dtype).removeprefix("torch.")


def looped(chunk_seed: Callable[[int, int], int]) -> Callable[[int, int, torch.dtype], Tensor]:
    """The loop that one would write by hand, with any derivation of a chunk's seed."""

    def draw(seed: int, chunks: int, dtype: torch.dtype) -> Tensor:
        noise = torch.empty((chunks, POSITIONS, FEATURES), dtype=dtype)
        for index in range(chunks):
            generator = torch.Generator().manual_seed(chunk_seed(seed, index))
            torch.randn((POSITIONS, FEATURES), generator=generator, dtype=dtype, out=noise[index])
        return noise

    return draw


def draw_ours(seed: int, chunks: int, dtype: torch.dtype) -> Tensor:
    """Our noise."""
    shape = (1, chunks * POSITIONS, FEATURES)
    noise = sample_chunked_noise(shape, seed=seed, chunk_size=POSITIONS, device="cpu", dtype=dtype)
    return noise.view(chunks, POSITIONS, FEATURES)


def draw_plain(seed: int, chunks: int, dtype: torch.dtype) -> Tensor:
    """One `torch.randn` over the sequence: not prefix-invariant, but what ATen's normal law is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn((chunks, POSITIONS, FEATURES), generator=generator, dtype=dtype)


def derive_chunk_seeds(seed: Seeds, chunk_index: Seeds) -> Seeds:
    """`derive_chunk_seed` on arrays of uint64, with the reference's own two permutations."""
    with np.errstate(over="ignore"):  # NumPy warns of a single number that wraps round, as it should here
        key = mix64(seed + np.uint64(GOLDEN_GAMMA))
        high = mix64(key + GOLDEN_GAMMA * (chunk_index + np.uint64(1))) >> 32
    low = fmix32((fmix32((chunk_index ^ key) & 0xFFFFFFFF) + (key >> 32) + (chunk_index >> 32)) & 0xFFFFFFFF)
    return high << 32 | low


def check_arrays() -> None:
    """The arrays' arithmetic is the library's."""
    seeds, chunks = np.random.default_rng(0).integers(0, 2**64, (2, 100), dtype=np.uint64)
    expected = [derive_chunk_seed(int(s), int(c)) for s, c in zip(seeds, chunks, strict=True)]
    assert derive_chunk_seeds(seeds, chunks).tolist() == expected


OURS = Source("derive_chunk_seed", draw_ours, derive_chunk_seeds)
PLAIN = Source("one torch.randn", draw_plain)
SUM = Source("seed + chunk_index", looped(lambda seed, index: seed + index), lambda s, k: s + k, good=False)
SAME = Source("same seed", looped(lambda seed, index: seed), lambda s, k: s + np.uint64(0) * k, good=False)
SOURCES = (OURS, PLAIN, SUM, SAME)

"""Prefix-invariant noise and the seeds behind it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from . import reference
from ._arguments import as_int64, as_integer, as_seed
from ._load import library


def derive_chunk_seed(seed: int, chunk_index: int) -> int:
    """Returns the seed of the generator that draws one chunk of the noise of `seed`.

    A hash of both, so that neighbouring seeds share no chunks, as they would with `seed + chunk_index`. For a fixed
    seed the low 32 bits are a permutation of the low 32 bits of `chunk_index`: CPU generators keep only these, and so
    no two of the first 2**32 chunks of a sequence repeat on any device. Chunks of different seeds repeat on CPU with
    probability 2**-32 a pair. The result is the same everywhere and for ever; it is not a cryptographic hash.

    Source: SplitMix64's finalizer (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014) for the
    key and the high half, MurmurHash3's 32-bit finalizer for the low half; `chunked_noise.reference` spells it out.

    Args:
        seed: The noise layer's seed. Any integer; it is reduced modulo 2**64.
        chunk_index: The index of the chunk along the sequence, in [0, 2**64).

    Returns:
        A seed in [0, 2**64), for `torch.Generator.manual_seed`.

    Raises:
        ValueError: If `chunk_index` is outside [0, 2**64).
        TypeError: If an argument is not an integer.

    Example:
        >>> hex(derive_chunk_seed(0, 1))
        '0xb382a3058d1e9194'
    """
    seed = as_integer(seed, "seed")
    chunk_index = as_integer(chunk_index, "chunk_index")
    if torch.compiler.is_compiling():
        return reference.derive_chunk_seed(seed, chunk_index)  # plain arithmetic, which a trace can see through
    if not 0 <= chunk_index < 2**64:
        raise ValueError(f"chunk_index must be in [0, 2**64), got {chunk_index}")
    return library.derive_chunk_seed(seed % 2**64, chunk_index)


def sample_chunked_noise(
    shape: Sequence[int],
    *,
    seed: int,
    chunk_size: int,
    device: torch.device | str,
    dtype: torch.dtype,
    start: int = 0,
) -> Tensor:
    """Samples standard normal noise whose values at a position depend only on `seed` and the position's chunk.

    Chunk k, the positions from `k * chunk_size` on, holds the values that `torch.randn((1, chunk_size, ...))` draws
    from a new generator of the device seeded with `derive_chunk_seed(seed, k)`, bit for bit; a last chunk that is not
    full is cut. Appending positions or adding rows therefore never changes the noise that was there.

    The result depends on the arguments, the device type (on CUDA, above one launch wave of a chunk, the GPU model), the
    torch version and, on CPU, `torch.backends.cpu.get_cpu_capability()`, and on nothing else: no global generator is
    read or moved. The same seed gives every input and every row the same noise.

    Args:
        shape: (batch, sequence, ...), at least 2 sizes, each >= 0.
        seed: Any integer; it is reduced modulo 2**64.
        chunk_size: Positions per chunk, in [1, 2**63).
        device: A device, or a string that names one. On "meta" the result has no values.
        dtype: float16, bfloat16, float32, float64, complex32, complex64 or complex128.
        start: The first position. The result equals the same positions of a longer call from 0, bit for bit.

    Returns:
        Noise of that shape, device and dtype. The rows are one memory expanded over the batch (stride 0); use
        `.contiguous()` before writing to them.

    Raises:
        ValueError: If `chunk_size` is not positive, `shape` has fewer than 2 sizes or a negative one, `start` is
            negative, or a position or an element of a chunk would not fit 63 bits.
        TypeError: If an integer is none, or `dtype` has no normal distribution.

    Example:
        >>> long = sample_chunked_noise((4, 100, 8), seed=7, chunk_size=16, device="cpu", dtype=torch.float32)
        >>> short = sample_chunked_noise((1, 9, 8), seed=7, chunk_size=16, device="cpu", dtype=torch.float32)
        >>> torch.equal(long[2, :9], short[0])
        True
    """
    if not torch.compiler.is_compiling():
        plain = library.sample_plain(shape, seed, chunk_size, device, dtype, start)
        if plain is not NotImplemented:
            return plain
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r}")
    if not isinstance(shape, Iterable):
        raise TypeError(f"shape must be a sequence of integers, got {shape!r}")
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        return _sample_traced(shape, as_seed(seed), chunk_size, as_int64(start, "start"), torch.device(device), dtype)
    noise: Tensor = torch.ops.chunked_noise.sample_chunked_noise.default(
        [as_int64(size, "a size in shape") for size in shape],
        seed=as_seed(seed),
        chunk_size=as_int64(chunk_size, "chunk_size"),
        start=as_int64(start, "start"),
        device=torch.device(device),
        dtype=dtype,
    )
    return noise


def _sample_traced(
    shape: Iterable[Tensor | int], seed: int, chunk_size: int, start: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Samples under `torch.jit.trace`, where sizes are tensors, so that the traced program follows its input's shape.

    The tracer itself cannot record an operator that takes a device or sizes, but it records a call of a scripted
    function.
    """
    sizes = torch.stack([size if isinstance(size, Tensor) else torch.full((), size) for size in shape])
    noise: Tensor = _sample_scripted(sizes, seed, chunk_size, start, device, dtype)
    return noise


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _sample_scripted(
    sizes: Tensor, seed: int, chunk_size: int, start: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    shape: list[int] = sizes.tolist()
    return torch.ops.chunked_noise.sample_chunked_noise(  # type: ignore[no-any-return]
        shape, seed=seed, chunk_size=chunk_size, start=start, device=device, dtype=dtype
    )

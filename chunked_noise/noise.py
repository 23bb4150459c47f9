"""Prefix-invariant noise and the seeds behind it."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from . import reference
from ._arguments import as_device, as_int64, as_integer, as_one_or_many, as_seed, as_sizes, as_tensor, check_out, show
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
        raise ValueError(f"chunk_index must be in [0, 2**64), got {show(chunk_index)}")
    return library.derive_chunk_seed(seed % 2**64, chunk_index)


def sample_chunked_noise(
    shape: Sequence[int],
    *,
    seed: int | Sequence[int] | Tensor,
    chunk_size: int,
    device: torch.device | str,
    dtype: torch.dtype,
    start: int | Sequence[int] | Tensor = 0,
    out: Tensor | None = None,
) -> Tensor:
    """Samples standard normal noise whose values at a position depend only on `seed` and the position's chunk.

    Chunk k, the positions from `k * chunk_size` on, holds the values that `torch.randn((1, chunk_size, ...))` draws
    from a new generator of the device seeded with `derive_chunk_seed(seed, k)`, bit for bit; a last chunk that is not
    full is cut. Appending positions or adding rows therefore never changes the noise that was there.

    The result depends on the arguments, the device type (on CUDA, above one launch wave of a chunk, the GPU model), the
    torch version and, on CPU, `torch.backends.cpu.get_cpu_capability()`, and on nothing else: no global generator is
    read or moved. The same seed gives every input and every row the same noise.

    The cost follows the positions asked for and, on CPU, how many numbers the chunk has before the first of them, which
    take 0.1 ns each. More than 2**36 are refused. Where `show_config()` names the engine `aten`, it draws whole chunks.

    Args:
        shape: (batch, sequence, ...), at least 2 sizes, each >= 0.
        seed: Any integer, which is reduced modulo 2**64. Or one for each row, as a sequence or an integer tensor of
            shape (batch,), where int64 holds the two's complement of a seed; row r then equals a call of batch 1 with
            that seed. A tensor of shape () serves all rows.
        chunk_size: Positions per chunk, in [1, 2**63).
        device: A device, or a string that names one. On "meta" the result has no values.
        dtype: float16, bfloat16, float32, float64, complex32, complex64 or complex128.
        start: The first position, >= 0, or one for each row. The result equals the same positions of a longer call
            from 0, bit for bit. In a tensor on another device than a CPU, a negative start is not noticed, and gives
            values without meaning.
        out: A tensor of this shape, dtype and device, of any strides, to fill and return. Its rows are written.

    Returns:
        Noise of that shape, device and dtype. With one seed and one start, and no `out`, the rows are one memory
        expanded over the batch (stride 0); use `.contiguous()` before writing to them.

    Raises:
        ValueError: If `chunk_size` is not positive, `shape` has fewer than 2 sizes or a negative one, a start is
            negative or too far inside a huge chunk, a position or an element of a chunk would not fit 63 bits, there is
            not one seed or start for each row, or `out` has another shape, dtype or device or overlaps itself. Nothing
            is written then.
        TypeError: If an integer is none, or `dtype` has no normal distribution.
        RuntimeError: If the memory cannot be had. NotImplementedError is one that says that torch has no such device.

    Example:
        >>> options = {"chunk_size": 16, "device": "cpu", "dtype": torch.float32}
        >>> long = sample_chunked_noise((4, 100, 8), seed=7, **options)
        >>> short = sample_chunked_noise((1, 9, 8), seed=7, **options)
        >>> torch.equal(long[2, :9], short[0])
        True
        >>> step = sample_chunked_noise((2, 1, 8), seed=[3, 7], start=[0, 42], **options)
        >>> torch.equal(step[1, 0], long[0, 42])
        True
    """
    if out is None and not torch.compiler.is_compiling():
        plain = library.sample_plain(shape, seed, chunk_size, device, dtype, start)
        if plain is not NotImplemented:
            return plain
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r}")
    device = as_device(device)
    seeds = as_one_or_many(seed, "seed", as_seed)
    starts = as_one_or_many(start, "start", as_int64)
    chunk_size = as_int64(chunk_size, "chunk_size")
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        if out is not None or isinstance(seeds, Tensor) or isinstance(starts, Tensor):
            raise RuntimeError("torch.jit.trace records sample_chunked_noise only with one seed and start, without out")
        return _sample_traced(shape, seeds, chunk_size, starts, device, dtype)
    sizes = as_sizes(shape, "shape")
    overload = "default"
    if isinstance(seeds, Tensor) or isinstance(starts, Tensor):
        overload = "rows"
        seeds, starts = as_tensor(seeds, starts), as_tensor(starts, seeds)
    if out is None:
        noise: Tensor = getattr(torch.ops.chunked_noise.sample_chunked_noise, overload)(
            sizes, seed=seeds, chunk_size=chunk_size, start=starts, device=device, dtype=dtype
        )
        return noise
    check_out(out, sizes, device, dtype)
    fill = getattr(torch.ops.chunked_noise.fill_chunked_noise_, overload)
    fill(out, seed=seeds, chunk_size=chunk_size, start=starts)
    return out


def gather_chunked_noise(
    positions: Sequence[int] | Tensor,
    *,
    seeds: int | Sequence[int] | Tensor,
    chunk_size: int,
    feature_shape: Sequence[int],
    dtype: torch.dtype,
    out: Tensor | None = None,
) -> Tensor:
    """Samples the noise of single tokens: those of a flat batch, as continuous batching packs them.

    Row i is the noise at position `positions[i]` of `seeds[i]`, bit for bit what `sample_chunked_noise` gives there, in
    any order, repeats allowed. On CPU, tokens of one seed and chunk share the work.

    Args:
        positions: Integers of shape (tokens,), each >= 0. The result is on the device of this tensor.
        seeds: Integers of shape (tokens,), int64 holding the two's complement of a seed; or one seed for all.
        chunk_size: Positions per chunk, in [1, 2**63).
        feature_shape: The shape of the noise of one token; () for a single number.
        dtype: float16, bfloat16, float32, float64, complex32, complex64 or complex128.
        out: A tensor of the result's shape, dtype and device, of any strides, to fill and return.

    Returns:
        Noise of shape (tokens, *feature_shape).

    Raises:
        ValueError: If a position is negative (looked at on CPU only; elsewhere such a token gets values without
            meaning), the numbers of positions and seeds differ, `chunk_size` is not positive, or `out` has another
            shape, dtype or device or overlaps itself. Nothing is written then.
        TypeError: If positions or seeds are not integers, or `dtype` has no normal distribution.
        RuntimeError: If the memory cannot be had.

    Example:
        >>> options = {"chunk_size": 16, "dtype": torch.float32}
        >>> flat = gather_chunked_noise([5, 0, 90], seeds=[1, 1, 2], feature_shape=(8,), **options)
        >>> whole = sample_chunked_noise((1, 91, 8), seed=2, device="cpu", **options)
        >>> torch.equal(flat[2], whole[0, 90])
        True
    """
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype must be a torch.dtype, got {dtype!r}")
    where = as_one_or_many(positions, "a position", as_int64)
    if isinstance(where, Tensor) and where.dim() != 1:
        raise ValueError(f"positions must have 1 dimension, got shape {tuple(where.shape)}")
    if not isinstance(where, Tensor):
        raise TypeError(f"positions must be integers of shape (tokens,), got {positions!r}")
    features = as_sizes(feature_shape, "feature_shape")
    of = as_tensor(as_one_or_many(seeds, "a seed", as_seed), where)
    if torch.compiler.is_compiling():
        of = of.to(where.device)  # which a CUDA graph capture would not allow
    chunk_size = as_int64(chunk_size, "chunk_size")
    if out is None:
        noise: Tensor = torch.ops.chunked_noise.gather_chunked_noise.default(
            where, seeds=of, chunk_size=chunk_size, feature_shape=features, dtype=dtype
        )
        return noise
    check_out(out, [*where.shape, *features], where.device, dtype)
    torch.ops.chunked_noise.fill_chunked_noise_.rows(out.unsqueeze(1), seed=of, chunk_size=chunk_size, start=where)
    return out


def _sample_traced(
    shape: Iterable[Tensor | int], seed: int, chunk_size: int, start: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    """Samples under `torch.jit.trace`, where sizes are tensors, so that the traced program follows its input's shape.

    The tracer itself cannot record an operator that takes a device or sizes, but it records a call of a scripted
    function.
    """
    sizes = [
        size if isinstance(size, Tensor) else torch.full((), as_int64(size, "a size in shape"), device="cpu")
        for size in shape
    ]
    noise: Tensor = _sample_scripted(torch.stack(sizes), seed, chunk_size, start, device, dtype)
    return noise


@torch.jit.script_if_tracing  # type: ignore[untyped-decorator]
def _sample_scripted(
    sizes: Tensor, seed: int, chunk_size: int, start: int, device: torch.device, dtype: torch.dtype
) -> Tensor:
    shape: list[int] = sizes.tolist()
    return torch.ops.chunked_noise.sample_chunked_noise(  # type: ignore[no-any-return]
        shape, seed=seed, chunk_size=chunk_size, start=start, device=device, dtype=dtype
    )

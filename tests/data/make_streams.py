"""Makes streams.json and cuda_streams.csv: hashes of streams. `python tests/data/make_streams.py`.

streams.json has SHA-256 hashes, from the reference alone. Adds the entries of the torch and the processor it runs on,
for every ATEN_CPU_CAPABILITY, and keeps the others.

cuda_streams.csv has the noise of a GPU with T threads in a launch wave, computed here from the definitions of Philox
and of ATen's loop. The hash is of the random words behind each element, and exact; the values are approximate, since
each GPU has its own last bits of logarithm, sine and cosine.

An entry that exists is never changed silently: a stream that differs from its pin stops the program.
"""

import csv
import hashlib
import io
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from chunked_noise import reference

STREAMS = Path(__file__).parent / "streams.json"
CUDA_STREAMS = Path(__file__).parent / "cuda_streams.csv"
SEEDS = (0, 7, 2**32 + 7, 2**63, 2**64 - 1)
# name: (batch, length, features...), chunk_size, start
SMALL_SHAPES = {
    "draws of 15 elements": ((1, 40, 3), 5, 0),
    "draws of 1 element": ((1, 40, 1), 1, 0),
    "whole blocks": ((1, 200, 16), 8, 0),
    "a tail": ((1, 100, 11), 3, 0),
    "a window": ((1, 37, 64), 16, 1005),
}
FULL_SHAPES = {
    **SMALL_SHAPES,
    "past the first state": ((1, 40, 1000), 9, 4),
    "an embedding": ((1, 512, 1024), 128, 0),
    "positions as chunks": ((1, 4096, 64), 1, 2**40),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128)


def half_variant() -> str:
    """How the running torch computes half-precision draws."""
    minor = int(torch.__version__.split(".")[1])
    return "rounded (torch <= 2.11)" if minor <= 11 else "libm (2.12)" if minor == 12 else "vector (>= 2.13)"


def by_libm(dtype: torch.dtype, shape: tuple[int, ...], chunk_size: int) -> bool:
    """Whether the values come from the C library's functions."""
    draw = chunk_size * int(torch.tensor(shape[2:]).prod())
    reals = 2 * draw if dtype.is_complex else draw
    return dtype in (torch.float64, torch.complex128) or reals < 16


def key(dtype: torch.dtype, name: str, shape: tuple[int, ...], chunk_size: int) -> str:
    """Everything that the values of a stream depend on besides the shape and the seed."""
    parts = [str(dtype).removeprefix("torch."), name]
    if by_libm(dtype, shape, chunk_size):
        parts.append("-".join(platform.libc_ver()))
    else:
        capability = torch.backends.cpu.get_cpu_capability()
        if platform.machine() == "x86_64":
            parts.append({"AVX2": "avx2 and avx512", "AVX512": "avx2 and avx512"}.get(capability, capability.lower()))
        else:
            parts.append(f"{platform.machine()} {capability.lower()}")
        if dtype in (torch.float16, torch.bfloat16):
            parts.append(half_variant())
    return ", ".join(parts)


def digest(sample, dtype: torch.dtype, shape: tuple[int, ...], chunk_size: int, start: int) -> str:
    """Returns the hash of the streams of all seeds, little-endian."""
    result = hashlib.sha256()
    for seed in SEEDS:
        noise = sample(shape, seed=seed, chunk_size=chunk_size, device="cpu", dtype=dtype, start=start)
        real = torch.view_as_real(noise) if dtype.is_complex else noise
        result.update(real.contiguous().view(torch.uint8).numpy().tobytes())
    return result.hexdigest()


def main() -> None:
    pinned = json.loads(STREAMS.read_text()) if STREAMS.exists() else {}
    for dtype in DTYPES:
        for name, (shape, chunk_size, start) in FULL_SHAPES.items():
            entry = key(dtype, name, shape, chunk_size)
            found = digest(reference.sample_chunked_noise, dtype, shape, chunk_size, start)
            if pinned.setdefault(entry, found) != found:
                sys.exit(f"{entry}: the stream is {found}, pinned is {pinned[entry]}")
    STREAMS.write_text(json.dumps(dict(sorted(pinned.items())), indent=1) + "\n")


def philox4x32_10(counter: np.ndarray, subsequence: np.ndarray, seed: np.ndarray) -> list[np.ndarray]:
    """Returns four random words (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    low = np.uint64(0xFFFFFFFF)
    x, y, z, w = counter, np.zeros_like(counter), subsequence, np.zeros_like(counter)
    key_x, key_y = seed & low, seed >> 32
    for _ in range(10):
        left, right = x * np.uint64(0xD2511F53), z * np.uint64(0xCD9E8D57)
        x, y, z, w = (right >> 32) ^ y ^ key_x, right & low, (left >> 32) ^ w ^ key_y, left & low
        key_x, key_y = (key_x + np.uint64(0x9E3779B9)) & low, (key_y + np.uint64(0xBB67AE85)) & low
    return [x, y, z, w]


def mix64(z: np.ndarray) -> np.ndarray:
    """SplitMix64's finalizer."""
    z = (z ^ (z >> 30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> 27)) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> 31)


def cuda_stream(
    threads: int, lanes: int, seed: int, chunk_size: int, features: int, start: int, length: int
) -> tuple[str, list[str]]:
    """Returns the hash of the words, and the last four values, of noise on a GPU: float32 has 4 lanes, float64 2."""
    position = np.repeat(np.arange(start, start + length, dtype=np.uint64), features)
    feature = np.tile(np.arange(features, dtype=np.uint64), length)
    chunk = position // np.uint64(chunk_size)
    element = position % np.uint64(chunk_size) * np.uint64(features) + feature
    first = start // chunk_size
    chunks = range(first, (start + length - 1) // chunk_size + 1)
    seeds = np.array([reference.derive_chunk_seed(seed, index) for index in chunks], dtype=np.uint64)
    row, subsequence = element // np.uint64(threads), element % np.uint64(threads)
    lane = row % np.uint64(lanes)
    x, y, z, w = philox4x32_10(row // np.uint64(lanes), subsequence, seeds[(chunk - np.uint64(first)).astype(np.int64)])

    hashed = mix64(np.arange(len(element), dtype=np.uint64))
    for part in (x | y << 32, z | w << 32, lane):
        hashed = mix64(hashed ^ part)

    if lanes == 4:
        pair = lane < 2
        uniform = np.where(pair, x, z) * 2.0**-32 + 2.0**-33
        turns = np.where(pair, y, w) * 2.0**-32 + 2.0**-33
    else:
        uniform = (x ^ y << 21) * 2.0**-53 + 2.0**-54
        turns = (z ^ w << 21) * 2.0**-53 + 2.0**-54
    angle = 2 * np.pi * turns
    values = np.sqrt(-2 * np.log(uniform)) * np.where(lane % np.uint64(2) == 0, np.sin(angle), np.cos(angle))
    return f"{int(hashed.sum(dtype=np.uint64)):016x}", [f"{value:.4f}" for value in values[-4:]]


def make_cuda_streams() -> None:
    """Writes cuda_streams.csv."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["threads", "lanes", "seed", "chunk_size", "features", "start", "length", "words", *"abcd"])
    for threads in (256, 40_960, 221_184, 270_336):  # made up, T4, A100, H100 and H200
        for shape in ((16, 100, 5, 50), (5, threads + 3, 3, 7), (1, 9 * threads + 7, 2**40, 2)):
            for lanes in (4, 2):
                for seed in (7, 2**64 - 1):
                    words, values = cuda_stream(threads, lanes, seed, *shape)
                    writer.writerow([threads, lanes, seed, *shape, words, *values])
    if CUDA_STREAMS.exists() and CUDA_STREAMS.read_text() != table.getvalue():
        sys.exit(f"the streams are\n{table.getvalue()}which is not what is pinned in {CUDA_STREAMS}")
    CUDA_STREAMS.write_text(table.getvalue())


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["here"]):
        sys.exit(__doc__)
    if len(sys.argv) == 1:
        make_cuda_streams()
        capabilities = ["default", "avx2", "avx512"]
        native = torch.backends.cpu.get_cpu_capability().lower()  # more would crash
        for capability in capabilities[: capabilities.index(native) + 1] if native in capabilities else ["default"]:
            subprocess.run(
                [sys.executable, __file__, "here"], env={**os.environ, "ATEN_CPU_CAPABILITY": capability}, check=True
            )
    else:
        main()

"""Makes streams.json: SHA-256 hashes of streams, from the reference alone. `python tests/data/make_streams.py`.

Adds the entries of the torch and the processor it runs on, for every ATEN_CPU_CAPABILITY, and keeps the others. An
entry that exists is never changed silently: a stream that differs from its pin stops the program.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import torch

from chunked_noise import reference

STREAMS = Path(__file__).parent / "streams.json"
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
        parts.append("default" if capability == "DEFAULT" else "avx2 and avx512")
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


if __name__ == "__main__":
    if len(sys.argv) == 1:
        for capability in ("default", "avx2", "avx512"):
            subprocess.run(
                [sys.executable, __file__, "here"], env={**os.environ, "ATEN_CPU_CAPABILITY": capability}, check=True
            )
    else:
        main()

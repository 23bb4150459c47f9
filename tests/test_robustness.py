"""Extreme numbers, memory and interrupts: nothing leaks, nothing is lost, the process goes on."""

import pytest
import torch
from support import assert_same_bits, run_python

from chunked_noise import gather_chunked_noise, reference, sample_chunked_noise


@pytest.mark.parametrize("calls", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_no_leak(calls):
    """Resident memory grows by less than 5 MB, over every function and error."""
    code = """
import resource, sys, torch
from pathlib import Path
from chunked_noise import derive_chunk_seed, gather_chunked_noise, padded_chunks, sample_chunked_noise

options = dict(chunk_size=16, dtype=torch.float32)
out, x = torch.empty(2, 5, 8), torch.ones(1, 20, 3)

def error():
    try:
        sample_chunked_noise((1, -1), seed=1, device="cpu", **options)
    except ValueError:
        pass

functions = [
    lambda: sample_chunked_noise((2, 5, 8), seed=7, device="cpu", **options),
    lambda: sample_chunked_noise((2, 5, 8), seed=7, device="cpu", out=out, **options),
    lambda: sample_chunked_noise((2, 5, 8), seed=[7, 8], start=[3, 14], device="cpu", **options),
    lambda: gather_chunked_noise([5, 1], seeds=[1, 2], feature_shape=(8,), **options),
    lambda: list(padded_chunks(16, x)),
    lambda: derive_chunk_seed(7, 3),
    error,
]

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

for function in functions:
    for _ in range(2000):
        function()
before = resident()
for function in functions:
    for _ in range(int(sys.argv[1]) // len(functions)):
        function()
print((resident() - before) / 1e6)
"""
    assert float(run_python(code, str(calls), timeout=1200)) < 5


def test_a_failed_allocation_leaves_the_process_alive():
    code = """
import resource, torch
from chunked_noise import gather_chunked_noise, sample_chunked_noise
options = dict(chunk_size=16, dtype=torch.float32)
sample_chunked_noise((1, 5, 8), seed=7, device="cpu", **options)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
for call in (
    lambda: sample_chunked_noise((1, 2**25, 8), seed=7, device="cpu", **options),
    lambda: sample_chunked_noise((64, 2**19, 8), seed=list(range(64)), device="cpu", **options),
    lambda: gather_chunked_noise(torch.arange(2**10), seeds=7, feature_shape=(2**17,), **options),
    lambda: sample_chunked_noise((1, 9, 8), seed=7, device="cpu", out=torch.empty(1).expand(1, 9, 8), **options),
):
    try:
        call()
    except (MemoryError, RuntimeError, ValueError) as error:
        print(type(error).__name__)
print(sample_chunked_noise((1, 5, 8), seed=7, device="cpu", **options).shape)
"""
    lines = run_python(code).split("\n")
    assert lines[:5] == ["RuntimeError", "RuntimeError", "RuntimeError", "ValueError", "torch.Size([1, 5, 8])"]


def test_interrupt_during_a_long_call():
    """Ctrl-C is raised when the call ends, and the next call gives the right values."""
    code = """
import signal, torch
from chunked_noise import reference, sample_chunked_noise
options = dict(seed=7, chunk_size=128, device="cpu", dtype=torch.float32)
signal.setitimer(signal.ITIMER_REAL, 0.05)
signal.signal(signal.SIGALRM, signal.default_int_handler)
try:
    while True:
        sample_chunked_noise((1, 8192, 1024), **options)
except KeyboardInterrupt:
    print("interrupted")
print(torch.equal(sample_chunked_noise((1, 300, 8), **options), reference.sample_chunked_noise((1, 300, 8), **options)))
"""
    assert run_python(code).split() == ["interrupted", "True"]


AROUND_POWERS_OF_TWO = sorted({2**power + offset for power in range(64) for offset in (-1, 0, 1)})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_seeds_around_every_power_of_two(dtype):
    """Of either sign, as integers and as tensors, which hold the two's complement."""
    options = {"chunk_size": 3, "device": "cpu", "dtype": dtype}
    seeds = AROUND_POWERS_OF_TWO + [-seed for seed in AROUND_POWERS_OF_TWO] + [2**64 - 1, 2**64, 2**64 + 1]
    expected = [reference.sample_chunked_noise((1, 4, 9), seed=seed, **options) for seed in seeds]
    assert len({tuple(noise.flatten().tolist()) for noise in expected}) == len({seed % 2**64 for seed in seeds})
    for seed, noise in zip(seeds, expected, strict=True):
        assert_same_bits(sample_chunked_noise((1, 4, 9), seed=seed, **options), noise)
    rows = sample_chunked_noise((len(seeds), 4, 9), seed=seeds, **options)
    assert_same_bits(rows, torch.cat(expected))


@pytest.mark.parametrize("chunk_size", [1, 3, 16, 2**33 + 1, 2**60])
def test_starts_around_every_power_of_two(chunk_size):
    """As far as 63 bits and the 2**36 numbers go that a CPU will pass over."""
    options = {"chunk_size": chunk_size, "dtype": torch.float32}
    starts = [start for start in AROUND_POWERS_OF_TWO if start <= 2**63 - 1 - 2 and start % chunk_size * 6 < 2**18]
    assert len(starts) > 40
    # In a chunk too large to be drawn, the beginning is that of any chunk with so many whole blocks of 16.
    drawn = min(chunk_size, 2**18) if chunk_size > 2**20 else chunk_size
    expected = []
    for start in starts:
        chunk, offset = divmod(start, chunk_size)
        if drawn == chunk_size:
            noise = reference.sample_chunked_noise((1, 2, 6), seed=7, device="cpu", start=start, **options)
        else:
            generator = torch.Generator().manual_seed(reference.derive_chunk_seed(7, chunk))
            noise = torch.randn((1, drawn, 6), generator=generator)[:, offset : offset + 2]
        expected.append(noise)
        assert_same_bits(sample_chunked_noise((1, 2, 6), seed=7, device="cpu", start=start, **options), noise)
    gathered = gather_chunked_noise(starts, seeds=7, feature_shape=(6,), **options)
    assert_same_bits(gathered, torch.cat(expected)[:, 0])
    for start in (2**63 - 1, 2**63, 2**64, -1):
        with pytest.raises(ValueError, match=str(start)):
            sample_chunked_noise((1, 2, 6), seed=7, device="cpu", start=start, **options)

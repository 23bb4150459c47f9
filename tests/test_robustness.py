"""Memory and interrupts: nothing leaks, nothing is lost, the process goes on."""

import pytest
from support import run_python


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

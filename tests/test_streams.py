"""Streams that users may have stored: pinned by hashes, which tests/data/make_streams.py made from the reference."""

import importlib.util
import json

import pytest
import torch
from support import ROOT, run_python

from chunked_noise import reference, sample_chunked_noise

spec = importlib.util.spec_from_file_location("make_streams", ROOT / "tests/data/make_streams.py")
make_streams = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_streams)
PINNED = json.loads(make_streams.STREAMS.read_text())


def check(dtype, name):
    shape, chunk_size, start = make_streams.FULL_SHAPES[name]
    key = make_streams.key(dtype, name, shape, chunk_size)
    ours = make_streams.digest(sample_chunked_noise, dtype, shape, chunk_size, start)
    documented = make_streams.digest(reference.sample_chunked_noise, dtype, shape, chunk_size, start)
    assert ours == documented, f"{key}: the promise of exactness broke: ours is not the documented draw"
    if key not in PINNED:
        pytest.skip(f"no pin for {key}: made on another C library or torch")
    assert documented == PINNED[key], (
        f"{key}: torch's own draws changed, or derive_chunk_seed or the mapping of positions to draws did "
        "(tests/test_seed.py tells which): see docs/streams.md for how a change is announced"
    )


@pytest.mark.parametrize("dtype", make_streams.DTYPES)
@pytest.mark.parametrize("name", make_streams.SMALL_SHAPES)
def test_small_set(dtype, name):
    check(dtype, name)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", make_streams.DTYPES)
@pytest.mark.parametrize("name", make_streams.FULL_SHAPES)
def test_full_set(dtype, name):
    check(dtype, name)


def test_at_default_capability():
    """Another capability has other values for float32, and pins of its own."""
    code = """
import pytest, torch, test_streams
for name in test_streams.make_streams.SMALL_SHAPES:
    for dtype in test_streams.make_streams.DTYPES:
        try:
            test_streams.check(dtype, name)
        except pytest.skip.Exception:
            pass
print(torch.backends.cpu.get_cpu_capability())
"""
    assert run_python(code, ATEN_CPU_CAPABILITY="default").strip() == "DEFAULT"


def test_a_change_is_seen(monkeypatch):
    monkeypatch.setattr(reference, "derive_chunk_seed", lambda seed, index: (seed + index) % 2**64)
    with pytest.raises(AssertionError, match="exactness broke"):
        check(torch.float32, "whole blocks")

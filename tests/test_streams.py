"""Streams that users may have stored: pinned by hashes, which tests/data/make_streams.py made from the reference."""

import csv
import importlib.util
import json
import platform

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
        halves = dtype in (torch.float16, torch.bfloat16)
        always = platform.machine() == "x86_64" and not halves and not make_streams.by_libm(dtype, shape, chunk_size)
        assert not always, f"{key}: one of those that every torch and C library has in common, and no pin"
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


PINNED_CUDA = list(csv.DictReader(make_streams.CUDA_STREAMS.read_text().splitlines()))


def cuda_stream(row):
    names = ("threads", "lanes", "seed", "chunk_size", "features", "start", "length")
    return make_streams.cuda_stream(*(int(row[name]) for name in names))


@pytest.mark.parametrize("row", [row for row in PINNED_CUDA if row["threads"] == "256"], ids=lambda row: row["words"])
def test_cuda_pins_follow_from_the_definition(row):
    """That the engine gives them: tests/cpp/cuda_mapping_test.cpp, on the host, and tests/test_cuda.py."""
    assert cuda_stream(row) == (row["words"], [row[name] for name in "abcd"])


@pytest.mark.parametrize(
    ("lanes", "published"),
    [(4, ["-0.9247", "-0.4253", "-2.6438", "0.1452"]), (2, ["-0.3104", "-0.0343", "0.1756", "-2.2804"])],
)
def test_the_definition_gives_what_gpus_gave(monkeypatch, lanes, published):
    """The first values of torch.manual_seed(0) on a GPU, as people published them."""
    monkeypatch.setattr(reference, "derive_chunk_seed", lambda seed, index: 0)
    assert make_streams.cuda_stream(270_336, lanes, 0, 1, 4, 0, 1)[1] == published

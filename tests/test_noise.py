"""sample_chunked_noise against the reference, bit for bit, and its properties."""

import platform
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DTYPES, assert_same_bits, run_python

from chunked_noise import derive_chunk_seed, reference, sample_chunked_noise, warm_up

dtypes = st.sampled_from(DTYPES)
seeds = st.one_of(
    st.integers(0, 2**64 - 1), st.integers(-(2**70), 2**70), st.sampled_from([0, 2**32, 2**63, 2**64 - 1])
)
features = st.lists(st.integers(0, 5), max_size=3)


def sample(shape, seed=7, chunk_size=4, device="cpu", dtype=torch.float32, **options):
    return sample_chunked_noise(shape, seed=seed, chunk_size=chunk_size, device=device, dtype=dtype, **options)


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 3), st.integers(0, 40), features, st.integers(1, 50), seeds, dtypes, st.integers(0, 100))
def test_equals_the_reference(batch, length, features, chunk_size, seed, dtype, start):
    arguments = {"seed": seed, "chunk_size": chunk_size, "device": "cpu", "dtype": dtype, "start": start}
    shape = (batch, length, *features)
    actual = sample_chunked_noise(shape, **arguments)
    assert_same_bits(actual, reference.sample_chunked_noise(shape, **arguments))
    assert actual.stride() == reference.sample_chunked_noise(shape, **arguments).stride()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("chunk_size", "feature_count"),
    [(1, 1), (5, 3), (4, 4), (17, 1), (31, 1), (3, 11), (1, 16), (1, 17), (40, 1), (8, 16)],
    ids=lambda value: str(value),
)
def test_seams(chunk_size, feature_count, dtype):
    """Chunks of 1, 15, 16, 17, 31, 33 elements and more; lengths around a chunk's end."""
    c = chunk_size
    for length in {0, 1, c - 1, c, c + 1, 2 * c - 1, 2 * c, 2 * c + 1, 5 * c + 2}:
        shape = (2, length, feature_count)
        expected = reference.sample_chunked_noise(shape, seed=3, chunk_size=c, device="cpu", dtype=dtype)
        assert_same_bits(sample(shape, seed=3, chunk_size=c, dtype=dtype), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_draw_equals_the_documented_randn(dtype):
    generator = torch.Generator().manual_seed(derive_chunk_seed(11, 1))
    drawn = torch.randn((1, 8, 5), generator=generator, dtype=dtype)
    assert_same_bits(sample((1, 16, 5), seed=11, chunk_size=8, dtype=dtype)[:, 8:], drawn)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_threads(threads, dtype, count):
    """More work than one thread takes, chunks that no thread's share begins with, and one chunk only."""
    for shape, chunk_size in (((1, 1000, 301), 7), ((1, 300, 1000), 300), ((1, 20000, 5), 3)):
        threads(1)
        expected = reference.sample_chunked_noise(shape, seed=1, chunk_size=chunk_size, device="cpu", dtype=dtype)
        threads(count)
        assert_same_bits(sample(shape, seed=1, chunk_size=chunk_size, dtype=dtype), expected)


CAPABILITY_CODE = """
import torch
from chunked_noise import reference, sample_chunked_noise, show_config
from support import DTYPES, assert_same_bits
torch.set_num_threads(2)
count = 0
for dtype in DTYPES:
    for shape, chunk_size in (
        ((2, 9, 5), 3), ((1, 33, 1), 15), ((1, 33, 1), 16), ((1, 40, 1), 17), ((1, 70, 1), 31), ((2, 70, 3), 11),
        ((1, 300, 64), 16), ((1, 1000, 64), 999), ((1, 5000, 16), 1), ((1, 70, 1000), 64),
    ):
        for start in (0, 1, chunk_size - 1, 5 * chunk_size + 1):
            arguments = dict(seed=5, chunk_size=chunk_size, device="cpu", dtype=dtype, start=start)
            expected = reference.sample_chunked_noise(shape, **arguments)
            assert_same_bits(sample_chunked_noise(shape, **arguments), expected)
            count += 1
print(torch.backends.cpu.get_cpu_capability(), count)
print({line.split(": ", 1)[1] for line in show_config().splitlines() if line.startswith("  cpu ")})
"""


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
@pytest.mark.parametrize("engine", ["", "aten"])
def test_capabilities(capability, engine):
    if capability != "default" and not getattr(torch.cpu, f"_is_{capability}_supported")():
        pytest.skip(f"this processor has no {capability}")
    printed = run_python(CAPABILITY_CODE, ATEN_CPU_CAPABILITY=capability, CHUNKED_NOISE_ENGINE=engine).splitlines()
    name = capability.upper()
    assert printed[0] == f"{name} 280"
    if engine:
        assert printed[1] == "{'asked for by CHUNKED_NOISE_ENGINE'}"
    elif capability == "default":
        assert printed[1] == "{'no kernels for the CPU capability DEFAULT'}"
    elif sys.platform == "linux" and platform.machine() == "x86_64":
        assert printed[1] == f"{{'{name} kernels, checked against aten'}}"


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 17), st.integers(1, 17), st.data(), dtypes)
def test_prefix(chunk_size, feature_count, data, dtype):
    long = sample((1, 4 * chunk_size, feature_count), chunk_size=chunk_size, dtype=dtype)
    length = data.draw(st.integers(0, 4 * chunk_size))
    assert_same_bits(sample((1, length, feature_count), chunk_size=chunk_size, dtype=dtype), long[:, :length])


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 17), st.integers(1, 9), st.data(), dtypes)
def test_windows(chunk_size, feature_count, data, dtype):
    """A window, starting and ending anywhere in a chunk, is a part of the whole."""
    start = data.draw(st.integers(0, 3 * chunk_size))
    length = data.draw(st.integers(0, 4 * chunk_size - start))
    whole = sample((1, 4 * chunk_size, feature_count), chunk_size=chunk_size, dtype=dtype)
    window = sample((1, length, feature_count), chunk_size=chunk_size, dtype=dtype, start=start)
    assert_same_bits(window, whole[:, start : start + length])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_equal_and_one_memory(dtype):
    alone = sample((1, 40, 3), chunk_size=16, dtype=dtype)
    for batch in (2, 4, 33):
        rows = sample((batch, 40, 3), chunk_size=16, dtype=dtype)
        assert rows.stride(0) == 0
        for row in rows:
            assert_same_bits(row, alone[0])
    assert_same_bits(sample((3, 40, 3), chunk_size=16, dtype=dtype).contiguous()[1:2], alone)


def test_repeatable_and_no_global_state():
    before = torch.get_rng_state()
    try:
        first = sample((2, 9, 5))
        torch.randn(100)
        moved = torch.get_rng_state()
        assert_same_bits(sample((2, 9, 5)), first)
        assert torch.equal(torch.get_rng_state(), moved)
    finally:
        torch.set_rng_state(before)


def test_chunks_are_unrelated():
    for chunk_size in (1, 16):
        chunks = sample((1, 64 * chunk_size, 128), chunk_size=chunk_size).reshape(64, -1)
        assert len({tuple(chunk.tolist()) for chunk in chunks}) == 64
        correlation = torch.corrcoef(chunks) - torch.eye(64)
        assert correlation.abs().max() < 6 / chunks.shape[1] ** 0.5
    assert not torch.equal(sample((1, 32, 4), seed=0, chunk_size=16)[:, 16:], sample((1, 16, 4), seed=1, chunk_size=16))


def test_seeds_that_differ_above_bit_31():
    assert not torch.equal(sample((1, 8, 4), seed=5), sample((1, 8, 4), seed=5 + 2**32))


def test_feature_shape_is_part_of_the_noise():
    assert not torch.equal(sample((1, 8, 4)), sample((1, 8, 8))[..., :4])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tails_and_moments(dtype):
    """Half precision is not limited by uniforms of half precision."""
    if dtype.itemsize == 2 and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 12):
        pytest.skip("torch <= 2.11 itself draws half precision from uniforms of half precision")
    noise = sample((1, 2**16, 64), seed=0, chunk_size=1024, dtype=dtype).double()
    assert torch.isfinite(noise).all()
    assert noise.abs().max() > 4.5
    assert abs(noise.std() - 1) < 2e-3
    assert abs(noise.mean()) < 2e-3
    assert abs((noise.abs() > 3.5).double().mean() - 4.65e-4) < 5e-5


@pytest.mark.parametrize("shape", [(0, 8, 4), (1, 0, 4), (1, 8, 0), (0, 0, 0), (1, 8), (2, 0), (1, 8, 3, 0, 2)])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_empty_and_small_ranks(shape, device):
    noise = sample(shape, device=device)
    assert (noise.shape, noise.dtype, noise.device.type) == (shape, torch.float32, device)


@pytest.mark.parametrize(
    ("seed", "same"),
    [
        (17982163893102248868, 17982163893102248868 - 2**64),
        (2**64 - 1, -1),
        (2**64 + 3, 3),
        (10**30, 10**30 % 2**64),
        (np.int64(5), 5),
        (np.uint64(2**63 + 1), 2**63 + 1),
        (True, 1),
    ],
)
def test_seeds_of_every_kind(seed, same):
    expected = sample((1, 4, 2), seed=same)
    assert_same_bits(sample((1, 4, 2), seed=seed), expected)
    folded = (int(seed) + 2**63) % 2**64 - 2**63
    arguments = {"chunk_size": 4, "start": 0, "device": torch.device("cpu"), "dtype": torch.float32}
    assert_same_bits(torch.ops.chunked_noise.sample_chunked_noise((1, 4, 2), seed=folded, **arguments), expected)


def test_generator_seeds_are_accepted():
    for _ in range(50):
        sample((1, 4, 2), seed=torch.Generator().seed())


def test_integers_of_other_types():
    expected = sample((1, 8, 2), seed=5, chunk_size=4, start=1)
    numpy = sample((np.int64(1), np.int32(8), np.uint8(2)), seed=np.int64(5), chunk_size=np.int64(4), start=np.int8(1))
    assert_same_bits(numpy, expected)
    assert_same_bits(sample(torch.Size([1, 8, 2]), seed=5, start=1), expected)
    assert_same_bits(sample([1, 8, 2], seed=5, start=1), expected)


@pytest.mark.parametrize("name", ["seed", "chunk_size", "start"])
@pytest.mark.parametrize("value", [1.5, "5", None, 4.0])
def test_no_integer(name, value):
    with pytest.raises(TypeError, match=f"{name} must be an integer, got {value!r}"):
        sample((1, 8, 2), **{name: value})


@pytest.mark.parametrize(
    ("shape", "options", "error", "message"),
    [
        ((1, 8), {"chunk_size": 0}, ValueError, "chunk_size must be positive, got 0"),
        ((1, 8), {"chunk_size": -3}, ValueError, "chunk_size must be positive, got -3"),
        ((1, 8), {"chunk_size": 2**63}, ValueError, "chunk_size must be less than"),
        ((1, 8), {"start": -1}, ValueError, "start must not be negative, got -1"),
        ((1, 8), {"start": 2**63 - 8}, ValueError, "positions must be less than"),
        ((1, 8), {"start": 2**64}, ValueError, "start must be less than"),
        ((8,), {}, ValueError, "at least 2 dimensions"),
        ((), {}, ValueError, "at least 2 dimensions"),
        ((1, -8), {}, ValueError, r"negative size, got \[1, -8\]"),
        ((1, -(2**62) - 1), {}, ValueError, "negative size"),
        ((1, -(2**63)), {}, ValueError, "negative size"),
        ((-(2**63), 8, 2), {}, ValueError, "negative size"),
        ((1, 8), {"chunk_size": 10**5000}, ValueError, "got one of 16610 bits"),
        (b"ab", {}, TypeError, "shape must be a sequence of integers, got b'ab'"),
        ({1, 4, 2}, {}, TypeError, "shape must be a sequence of integers, got {"),
        ((1, 4, 2), {"device": None}, TypeError, "device must be a torch.device or a string, got None"),
        (bytearray(b"ab"), {}, TypeError, "shape must be a sequence of integers, got bytearray"),
        ({1: 2, 3: 4}, {}, TypeError, "shape must be a sequence"),
        ((-1, 8), {}, ValueError, "negative size"),
        ((1, 8, -2), {}, ValueError, "negative size"),
        ((1, 2**64), {}, ValueError, "size in shape must be less than"),
        ((1, 8, 2**32), {"chunk_size": 2**40}, ValueError, r"less than 2\*\*63 elements"),
        ((1, 8, 2**32, 1), {"chunk_size": 2**40}, ValueError, r"less than 2\*\*63 elements"),
        ((1, 8, 4), {"chunk_size": 2**61}, ValueError, r"less than 2\*\*63 elements"),
        ((1, 1.5), {}, TypeError, "size in shape must be an integer, got 1.5"),
        ("ab", {}, TypeError, "size in shape must be an integer, got 'a'"),
        (5, {}, TypeError, "shape must be a sequence of integers, got 5"),
        (None, {}, TypeError, "shape must be a sequence of integers, got None"),
        ((1, 8), {"dtype": torch.int64}, TypeError, "got Long"),
        ((1, 8), {"dtype": torch.bool}, TypeError, "got Bool"),
        ((1, 0), {"dtype": torch.uint8}, TypeError, "got Byte"),
        ((1, 8), {"dtype": torch.float8_e4m3fn}, TypeError, "got Float8_e4m3fn"),
        ((1, 8), {"dtype": "float32"}, TypeError, "dtype must be a torch.dtype, got 'float32'"),
        ((1, 8), {"device": "nowhere"}, RuntimeError, "nowhere"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_errors(shape, options, error, message, device):
    if "chunk_size must be positive" in message:
        with pytest.raises(error, match=message):
            reference.sample_chunked_noise(shape, seed=7, device=device, dtype=torch.float32, **options)
    with pytest.raises(error, match=message):
        sample(shape, **{"device": device, **options})


@pytest.mark.parametrize("device", ["cuda", "xpu", "mps", "xla", "privateuseone"])
def test_a_device_that_is_not_there(device):
    if device == "cuda" and torch.version.cuda:
        pytest.skip("this torch has CUDA")
    for seed in (7, [7]):
        with pytest.raises(NotImplementedError, match=f"^device {device} is not available in this build of torch$"):
            sample((1, 8), device=device, seed=seed)
    with pytest.raises(RuntimeError, match=device):
        warm_up(device)


def test_deep_inside_a_huge_chunk():
    """What would take minutes or centuries is refused, whether the kernels or ATen would draw it."""
    for start in (2**45, 2**60, [2**37, 0], [0, 2**37]):
        with pytest.raises((ValueError, RuntimeError), match=r"use a smaller chunk_size|allocate memory|overflowed"):
            sample((2, 1, 1), chunk_size=2**62, start=start)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_last_position_and_the_largest_chunk(device):
    last = sample((1, 8, 3), start=2**63 - 9, device=device)
    if device == "cpu":
        options = {"seed": 7, "chunk_size": 4, "device": "cpu", "dtype": torch.float32}
        assert_same_bits(last, reference.sample_chunked_noise((1, 8, 3), start=2**63 - 9, **options))
    for start in (2**63 - 8, [2**63 - 8]):
        with pytest.raises(ValueError, match="positions must be less than"):
            sample((1, 8, 3), start=start)
    for dtype, largest in ((torch.float32, 2**63 - 1), (torch.complex64, 2**62 - 1)):
        for seed in (7, [7]):
            assert sample((1, 0), seed=seed, chunk_size=largest, dtype=dtype, device=device).shape == (1, 0)
            with pytest.raises(ValueError, match="2\\*\\*63"):
                sample((1, 0), seed=seed, chunk_size=largest + 1, dtype=dtype, device=device)


def test_empty_batches_take_no_memory():
    assert sample((0, 2**31, 256)).shape == (0, 2**31, 256)
    assert sample((0, 2**62, 2)).shape == (0, 2**62, 2)


def test_documented_arguments_are_required():
    with pytest.raises(TypeError, match="missing"):
        sample_chunked_noise((1, 8), seed=0, chunk_size=4)
    with pytest.raises(TypeError, match="positional"):
        sample_chunked_noise((1, 8), 0, 4, "cpu", torch.float32)


def test_too_large_to_allocate():
    with pytest.raises(RuntimeError, match=r"allocate memory|overflowed"):
        sample((1, 2**50, 4))
    with pytest.raises(RuntimeError, match="overflowed"):
        sample((1, 2**62, 4))


def test_default_device_and_dtype_do_not_matter():
    expected = sample((2, 5, 3))
    with torch.device("meta"):
        assert_same_bits(sample((2, 5, 3)), expected)
        assert sample((2, 5, 3)).device.type == "cpu"
    torch.set_default_dtype(torch.float64)
    try:
        assert_same_bits(sample((2, 5, 3)), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), torch.device("cpu", 0)])
def test_spellings_of_a_device(device):
    assert_same_bits(sample((2, 5, 3), device=device).cpu(), sample((2, 5, 3)))


def test_many_python_threads():
    expected = {seed: sample((1, 50, 8), seed=seed) for seed in range(8)}
    failures = []
    stop = threading.Event()

    def work(seed):
        for _ in range(200):
            if not torch.equal(sample((1, 50, 8), seed=seed), expected[seed]):
                failures.append(seed)

    def disturb():
        own = torch.Generator()
        while not stop.is_set():
            torch.randn(100, generator=own)

    disturber = threading.Thread(target=disturb)
    workers = [threading.Thread(target=work, args=(seed,)) for seed in expected]
    for thread in (disturber, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    disturber.join()
    assert not failures


def test_inference_mode_and_no_grad():
    expected = sample((1, 300, 200))
    with torch.inference_mode():
        inside = sample((1, 300, 200))
        assert inside.is_inference()
    with torch.no_grad():
        assert_same_bits(sample((1, 300, 200)), expected)
    assert_same_bits(inside, expected)
    assert not expected.requires_grad


def test_import_does_not_start_cuda():
    assert run_python("import torch, chunked_noise; print(torch.cuda.is_initialized())").strip() == "False"

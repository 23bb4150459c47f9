"""Windows, seeds and starts by row, tokens in any order, and buffers of the caller, bit for bit the reference."""

import numpy as np
import pytest
import torch
import torch._dynamo.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from support import DTYPES, assert_same_bits, bits, run_python

from chunked_noise import gather_chunked_noise, reference, sample_chunked_noise

ops = torch.ops.chunked_noise
OPTIONS = {"chunk_size": 16, "device": "cpu", "dtype": torch.float32}
any_seed = st.integers(0, 2**64 - 1)


def one_row(length, features, seed, start, chunk_size=16, dtype=torch.float32):
    return reference.sample_chunked_noise(
        (1, length, *features), seed=seed, start=start, chunk_size=chunk_size, device="cpu", dtype=dtype
    )


def signed(seeds):
    return torch.tensor([(int(seed) + 2**63) % 2**64 - 2**63 for seed in seeds], dtype=torch.int64)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 40), st.lists(st.integers(0, 5), max_size=2), st.integers(1, 20))
def test_rows_equal_the_reference(data, length, features, chunk_size):
    seeds = data.draw(st.lists(any_seed, min_size=1, max_size=40))
    starts = data.draw(st.lists(st.integers(0, 100), min_size=len(seeds), max_size=len(seeds)))
    dtype = data.draw(st.sampled_from(DTYPES))
    rows = sample_chunked_noise(
        (len(seeds), length, *features), seed=seeds, start=starts, chunk_size=chunk_size, device="cpu", dtype=dtype
    )
    for row, seed, start in zip(rows, seeds, starts, strict=True):
        assert_same_bits(row[None], one_row(length, features, seed, start, chunk_size, dtype))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.integers(0, 40), max_size=2), st.integers(1, 20))
def test_gather_equals_the_reference(data, features, chunk_size):
    """Tokens of few requests, so that draws are shared, in any order and with repeats."""
    requests = data.draw(st.lists(any_seed, min_size=1, max_size=3))
    tokens = data.draw(st.lists(st.tuples(st.sampled_from(requests), st.integers(0, 60)), max_size=100))
    dtype = data.draw(st.sampled_from(DTYPES))
    noise = gather_chunked_noise(
        [position for _, position in tokens],
        seeds=[seed for seed, _ in tokens],
        chunk_size=chunk_size,
        feature_shape=features,
        dtype=dtype,
    )
    assert noise.shape == (len(tokens), *features)
    whole = {seed: one_row(61, features, seed, 0, chunk_size, dtype)[0] for seed in requests}
    for row, (seed, position) in zip(noise, tokens, strict=True):
        assert_same_bits(row, whole[seed][position])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("chunk_size", "features"), [(5, 3), (4, 4), (17, 1), (3, 11), (2, 320), (40, 50), (8, 1000)])
@pytest.mark.parametrize("count", [1, 2])
def test_gather_of_every_token(threads, dtype, chunk_size, features, count):
    """All positions of two requests, interleaved and backwards: every walk of a draw from one window to the next."""
    threads(count)
    length = 2 * chunk_size + 1
    positions = torch.arange(length).flip(0).repeat_interleave(2)
    seeds = torch.tensor([7, -7]).repeat(length)
    noise = gather_chunked_noise(positions, seeds=seeds, chunk_size=chunk_size, feature_shape=(features,), dtype=dtype)
    for row, seed in enumerate((7, -7)):
        expected = one_row(length, (features,), seed, 0, chunk_size, dtype)[0]
        assert torch.equal(bits(noise)[row::2].flip(0), bits(expected))


@pytest.mark.parametrize("seed_dtype", [torch.int64, torch.uint64, torch.int32, torch.uint8])
def test_seed_tensors_of_every_dtype(seed_dtype):
    values = [0, 200] if seed_dtype in (torch.uint8, torch.int32) else [2**63 - 1, 2**40]
    expected = sample_chunked_noise((2, 9, 3), seed=values, **OPTIONS)
    assert_same_bits(sample_chunked_noise((2, 9, 3), seed=torch.tensor(values, dtype=seed_dtype), **OPTIONS), expected)
    if seed_dtype == torch.uint64:
        large = torch.tensor([2**64 - 1, 2**63], dtype=torch.uint64)
        expected = sample_chunked_noise((2, 9, 3), seed=[2**64 - 1, -(2**63)], **OPTIONS)
        assert_same_bits(sample_chunked_noise((2, 9, 3), seed=large, **OPTIONS), expected)


@pytest.mark.parametrize(
    "seed", [[7, 10**30, -1], (7, 10**30, -1), np.array([7, 10**30 % 2**64, 2**64 - 1], dtype=np.uint64)]
)
def test_sequences_of_seeds(seed):
    rows = sample_chunked_noise((3, 9, 2), seed=seed, start=5, **OPTIONS)
    for row, single in zip(rows, (7, 10**30, -1), strict=True):
        assert_same_bits(row[None], one_row(9, (2,), single, 5))


def test_one_value_for_all_rows():
    starts = torch.tensor([0, 20, 3])
    rows = sample_chunked_noise((3, 9, 2), seed=7, start=starts, **OPTIONS)
    same = sample_chunked_noise((3, 9, 2), seed=torch.tensor(7), start=[0, 20, 3], **OPTIONS)
    assert_same_bits(rows, same)
    for row, start in zip(rows, starts.tolist(), strict=True):
        assert_same_bits(row[None], one_row(9, (2,), 7, start))
    assert sample_chunked_noise((3, 9, 2), seed=torch.tensor(7), **OPTIONS).is_contiguous()


def test_strided_seeds_and_starts():
    seeds = torch.arange(12).reshape(6, 2)[:, 1]
    starts = torch.arange(6).expand(2, 6)[0].flip(0)
    rows = sample_chunked_noise((6, 4, 2), seed=seeds, start=starts, **OPTIONS)
    for row, seed, start in zip(rows, seeds.tolist(), starts.tolist(), strict=True):
        assert_same_bits(row[None], one_row(4, (2,), seed, start))


def strided(shape, dtype):
    """Tensors of one shape and many layouts, all of them without overlap."""
    batch, length, features = shape
    yield torch.zeros(shape, dtype=dtype)
    yield torch.zeros(features, length, batch, dtype=dtype).permute(2, 1, 0)
    yield torch.zeros(batch, 2 * length, features, dtype=dtype)[:, ::2]
    yield torch.zeros(batch, length, 2 * features, dtype=dtype)[..., features:]
    yield torch.zeros(batch + 2, length, features, dtype=dtype)[1:-1]
    yield torch.zeros(batch, length * features + 1, dtype=dtype)[:, 1:].unflatten(1, (length, features))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("start", [0, 13])
def test_out(dtype, start):
    shape = (3, 11, 4)
    arguments = {"chunk_size": 8, "device": "cpu", "dtype": dtype, "start": start}
    for seed in (7, [7, 8, 9], torch.tensor([1, -1, 1])):
        expected = sample_chunked_noise(shape, seed=seed, **arguments)
        for out in strided(shape, dtype):
            assert sample_chunked_noise(shape, seed=seed, out=out, **arguments) is out
            assert_same_bits(out, expected)


def test_out_on_a_device_of_any_spelling():
    for device in ("cpu", "cpu:0", torch.device("cpu", 0)):
        out = sample_chunked_noise((3, 5, 2), seed=7, out=torch.empty(3, 5, 2), **{**OPTIONS, "device": device})
        assert_same_bits(out, sample_chunked_noise((3, 5, 2), seed=7, **OPTIONS).contiguous())


def test_out_rows_are_written():
    out = sample_chunked_noise((3, 5, 2), seed=7, out=torch.zeros(3, 5, 2), **OPTIONS)
    out[1].zero_()
    assert_same_bits(out[2], sample_chunked_noise((1, 5, 2), seed=7, **OPTIONS)[0])


def test_out_writes_nothing_beside():
    memory = torch.full((7, 20, 6), 5.0)
    out = memory[1:4, 3:9, 1:5]
    expected = memory.clone()
    sample_chunked_noise((3, 6, 4), seed=[1, 2, 3], out=out, **OPTIONS)
    expected[1:4, 3:9, 1:5] = sample_chunked_noise((3, 6, 4), seed=[1, 2, 3], **OPTIONS)
    assert_same_bits(memory, expected)


def test_out_of_gather():
    positions, seeds = torch.tensor([5, 0, 5]), torch.tensor([1, 2, 1])
    expected = gather_chunked_noise(positions, seeds=seeds, chunk_size=4, feature_shape=(3, 2), dtype=torch.float64)
    for out in (torch.zeros(3, 3, 2, dtype=torch.float64), torch.zeros(2, 3, 3, dtype=torch.float64).permute(2, 1, 0)):
        same = gather_chunked_noise(
            positions, seeds=seeds, chunk_size=4, feature_shape=(3, 2), dtype=torch.float64, out=out
        )
        assert same is out
        assert_same_bits(out, expected)


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (torch.zeros(2, 8, 3), ValueError, r"out must have shape \(2, 8, 2\), got \(2, 8, 3\)"),
        (torch.zeros(2, 8), ValueError, "out must have shape"),
        (
            torch.zeros(2, 8, 2, dtype=torch.float64),
            ValueError,
            r"out must have dtype torch.float32, got torch.float64",
        ),
        (torch.zeros(2, 8, 2, device="meta"), ValueError, "out must be on device cpu, got meta"),
        (torch.zeros(1, 8, 2).expand(2, 8, 2), ValueError, "must not overlap itself"),
        (torch.zeros(2, 1, 2).expand(2, 8, 2), ValueError, "must not overlap itself"),
        (torch.zeros(40).as_strided((2, 8, 2), (8, 1, 1)), ValueError, "must not overlap itself"),
        (torch.zeros(2, 8, 2, requires_grad=True), RuntimeError, "requires grad"),
        ("out", TypeError, "out must be a tensor"),
        ([0.0], TypeError, "out must be a tensor"),
    ],
)
@pytest.mark.parametrize("seed", [7, [7, 8]])
def test_errors_of_out(out, error, message, seed):
    with pytest.raises(error, match=message):
        sample_chunked_noise((2, 8, 2), seed=seed, out=out, **OPTIONS)
    if isinstance(out, torch.Tensor) and out.device.type == "cpu":
        assert not out.any()


@pytest.mark.parametrize("seed", [7, [7, 8]], ids=str)
def test_memory_that_was_taken_away(seed):
    """As FSDP does with parameters; torch itself would write there."""
    options = {"chunk_size": 4, "device": "cpu", "dtype": torch.float32}
    out = torch.zeros(2, 8, 3)
    out.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match=r"has less memory than its shape \[2, 8, 3\] needs: 0 of 192 bytes"):
        sample_chunked_noise((2, 8, 3), seed=seed, out=out, **options)
    seeds = torch.tensor([7, 8])
    seeds.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="seed has less memory"):
        sample_chunked_noise((2, 8, 3), seed=seeds, **options)


def test_out_that_shares_memory_with_the_seeds():
    memory = torch.zeros(2, 8, 2, dtype=torch.float64)
    seeds = memory.view(torch.int64)[:, 0, 0]
    with pytest.raises(ValueError, match="must not overlap"):
        sample_chunked_noise((2, 8, 2), seed=seeds, out=memory, **{**OPTIONS, "dtype": torch.float64})


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"seed": [1, 2, 3]}, ValueError, r"seed must have one value a row, of which there are 2, got shape \[3\]"),
        ({"seed": [1]}, ValueError, "seed must have one value a row"),
        ({"seed": torch.zeros(2, 2, dtype=torch.int64)}, ValueError, "seed must have one value a row"),
        ({"seed": torch.zeros(2)}, TypeError, "seed must be an integer tensor, got Float"),
        ({"seed": torch.zeros(2, dtype=torch.bool)}, TypeError, "seed must be an integer tensor, got Bool"),
        ({"seed": [1, 2.5]}, TypeError, "seed must be an integer, got 2.5"),
        ({"seed": "ab"}, TypeError, "seed must be an integer, got 'ab'"),
        ({"seed": b"ab"}, TypeError, "seed must be an integer, got b'ab'"),
        ({"seed": bytearray(b"ab")}, TypeError, "seed must be an integer, got bytearray"),
        ({"seed": {5, 9}}, TypeError, "seed must be an integer, got {"),
        ({"seed": {5: 1, 6: 2}}, TypeError, "seed must be an integer, got {5: 1, 6: 2}"),
        ({"seed": torch.tensor([1, 2]).to_sparse()}, ValueError, "seed must be strided"),
        ({"start": -(2**70)}, ValueError, r"start must be at least -2\*\*63"),
        ({"start": [0, -4]}, ValueError, "positions must not be negative, got -4 in row 1"),
        ({"start": torch.tensor([-1, 0])}, ValueError, "positions must not be negative, got -1 in row 0"),
        ({"start": [0, 2**63 - 3]}, ValueError, r"positions must be less than 2\*\*63, got start"),
        ({"start": [0, 2**63]}, ValueError, r"start must be less than 2\*\*63"),
        ({"start": [0]}, ValueError, "start must have one value a row"),
        ({"start": torch.tensor([0.0, 1.0])}, TypeError, "start must be an integer tensor"),
        ({"seed": [1, 2], "chunk_size": 0}, ValueError, "chunk_size must be positive"),
        ({"seed": [1, 2], "dtype": torch.int32}, TypeError, "got Int"),
        ({"seed": [1, 2], "chunk_size": 2**62, "start": 0}, ValueError, r"less than 2\*\*63 elements"),
    ],
)
def test_errors_of_rows(change, error, message):
    with pytest.raises(error, match=message):
        sample_chunked_noise((2, 8, 2), **{"seed": 7, **OPTIONS, **change})


@pytest.mark.parametrize(
    ("positions", "change", "error", "message"),
    [
        ([0, -4], {}, ValueError, "positions must not be negative, got -4 in row 1"),
        (torch.tensor([[0]]), {}, ValueError, r"positions must have 1 dimension, got shape \(1, 1\)"),
        (torch.tensor(0), {}, ValueError, "positions must have 1 dimension"),
        (
            torch.tensor(3),
            {"feature_shape": (8,), "out": torch.zeros(8)},
            ValueError,
            "positions must have 1 dimension",
        ),
        (torch.tensor(0), {"seeds": torch.tensor([1, 2, 3]), "out": torch.zeros(3)}, ValueError, "1 dimension"),
        (5, {}, TypeError, r"positions must be integers of shape \(tokens,\), got 5"),
        ("ab", {}, TypeError, "must be an integer, got 'ab'"),
        ([0.5], {}, TypeError, "must be an integer, got 0.5"),
        (torch.tensor([0.5]), {}, TypeError, "must be an integer tensor"),
        ([0, 1], {"seeds": [1]}, ValueError, "must have one value a row"),
        ([0, 1], {"chunk_size": -1}, ValueError, "chunk_size must be positive, got -1"),
        ([0, 1], {"feature_shape": 5}, TypeError, "feature_shape must be a sequence"),
        ([0, 1], {"feature_shape": (-5,)}, ValueError, "negative size"),
        ([0, 1], {"dtype": torch.bool}, TypeError, "got Bool"),
        ([0, 1], {"dtype": "float32"}, TypeError, "dtype must be a torch.dtype, got 'float32'"),
        ([0, 1], {"out": torch.zeros(2, 5)}, ValueError, r"out must have shape \(2, 3\)"),
        ([0, 1], {"out": torch.zeros(1, 3).expand(2, 3)}, ValueError, "must not overlap itself"),
    ],
)
def test_errors_of_gather(positions, change, error, message):
    arguments = {"seeds": 7, "chunk_size": 4, "feature_shape": (3,), "dtype": torch.float32, **change}
    with pytest.raises(error, match=message):
        gather_chunked_noise(positions, **arguments)


def test_zero_dimensional_arrays_are_integers():
    expected = sample_chunked_noise((2, 8, 2), seed=5, start=3, **OPTIONS)
    assert_same_bits(sample_chunked_noise((2, 8, 2), seed=np.array(5), start=np.array(3), **OPTIONS), expected)


def test_empty_requests_take_no_memory():
    for seed in (5, torch.tensor(5)):
        assert sample_chunked_noise((2**40, 0, 3), seed=seed, **OPTIONS).numel() == 0
    empty = sample_chunked_noise((3, 0, 4), seed=5, **OPTIONS)
    assert sample_chunked_noise((3, 0, 4), seed=5, out=empty, **OPTIONS) is empty


def test_seeds_and_positions_that_another_thread_writes():
    """Whatever they are at the moment: no crash. In a process of its own."""
    code = """
import threading, time, torch
from chunked_noise import gather_chunked_noise
positions = torch.zeros(50_000, dtype=torch.int64)
seeds = torch.zeros(50_000, dtype=torch.int64)
generator, stop = torch.Generator(), threading.Event()
def write():
    while not stop.is_set():
        positions.random_(0, 2**40, generator=generator)
        seeds.random_(0, 1000, generator=generator)
writer = threading.Thread(target=write)
writer.start()
end = time.monotonic() + 3
while time.monotonic() < end:
    gather_chunked_noise(positions, seeds=seeds, chunk_size=4, feature_shape=(2,), dtype=torch.float32)
stop.set()
writer.join()
print("done")
"""
    assert run_python(code).strip() == "done"


def test_empty_batches():
    assert sample_chunked_noise((0, 5, 3), seed=[], start=[], **OPTIONS).shape == (0, 5, 3)
    assert gather_chunked_noise([], seeds=[], chunk_size=4, feature_shape=(3,), dtype=torch.float32).shape == (0, 3)
    assert gather_chunked_noise([1], seeds=7, chunk_size=4, feature_shape=(), dtype=torch.float32).shape == (1,)
    assert gather_chunked_noise([1], seeds=7, chunk_size=4, feature_shape=(0,), dtype=torch.float32).shape == (1, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_huge_chunks_and_positions(dtype):
    """A chunk size of 2^40 neither allocates nor draws 2^40 positions."""
    code = f"""
import resource, torch
from chunked_noise import sample_chunked_noise
from support import assert_same_bits
options = dict(seed=7, device="cpu", dtype={dtype})
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
huge = sample_chunked_noise((1, 10, 64), chunk_size=2**40, **options)
# Draws of 16 elements or more that are multiples of 16 share their beginnings.
assert_same_bits(huge, sample_chunked_noise((1, 10, 64), chunk_size=64, **options))
far = sample_chunked_noise((1, 4, 64), chunk_size=16, start=2**62 + 14, **options)
from chunked_noise import reference
assert_same_bits(far, reference.sample_chunked_noise((1, 4, 64), chunk_size=16, start=2**62 + 14, **options))
print(torch.backends.cpu.get_cpu_capability())
"""
    if torch.backends.cpu.get_cpu_capability() == "DEFAULT":
        pytest.skip("the engine aten draws whole chunks")
    assert run_python(code).strip() in ("AVX2", "AVX512")


def test_gather_is_a_pure_operator():
    arguments = {"seeds": torch.tensor([1, 2, 1]), "chunk_size": 4, "feature_shape": (3,), "dtype": torch.float32}
    for positions in (torch.tensor([5, 0, 5]), torch.tensor([0, 1, 2])):
        torch.library.opcheck(ops.gather_chunked_noise.default, (positions,), arguments)
    assert not ops.gather_chunked_noise.default._schema.is_mutable


def test_script():
    def function(positions: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        return torch.ops.chunked_noise.gather_chunked_noise(
            positions, seeds=seeds, chunk_size=4, feature_shape=[3], dtype=torch.float32
        )

    scripted = torch.jit.script(function)
    positions, seeds = torch.tensor([5, 0, 90]), torch.tensor([1, -2, 1])
    for _ in range(3):
        assert_same_bits(scripted(positions, seeds), function(positions, seeds))


def test_compile_does_not_recompile_for_new_values():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def step(x, seeds, positions):
        noise = sample_chunked_noise(x.shape, seed=seeds, start=positions, chunk_size=16, device="cpu", dtype=x.dtype)
        flat = gather_chunked_noise(positions, seeds=seeds, chunk_size=16, feature_shape=(4,), dtype=x.dtype)
        return x + noise + flat[:, None]

    for batch in (2, 3, 7):
        for step_index in range(3):
            x = torch.ones(batch, 1, 4)
            seeds, positions = torch.arange(batch) - step_index, torch.arange(batch) * 5 + step_index
            noise = sample_chunked_noise(x.shape, seed=seeds, start=positions, **OPTIONS)
            assert_same_bits(step(x, seeds, positions), x + noise + noise)
    assert counter.frame_count <= 2


def test_decode_step_by_step_equals_the_whole():
    whole = sample_chunked_noise((1, 50, 8), seed=7, **OPTIONS)
    steps = [sample_chunked_noise((1, 1, 8), seed=7, start=t, **OPTIONS) for t in range(50)]
    assert_same_bits(torch.cat(steps, 1), whole)

"""The CUDA engine on a GPU: bit for bit the documented loop on that device, in one launch that graphs can capture."""

import csv
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from support import DTYPES, ROOT, assert_same_bits, run_python

import chunked_noise
from chunked_noise import gather_chunked_noise, reference, sample_chunked_noise

pytestmark = pytest.mark.cuda
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)

# T is the number of threads of ATen's largest launch: elements T apart share a Philox counter.
# Sizes as (multiple of T, rest).
SEAMS = [(0, rest) for rest in (1, 15, 16, 255, 256, 257)]
SEAMS += [(1, -1), (1, 0), (1, 1), (4, -1), (4, 0), (4, 1), (4, 4), (9, 7)]
SEEDS = (0, 1, 2**32, 2**63, 2**64 - 1)


@pytest.fixture
def launch_threads():
    properties = torch.cuda.get_device_properties(0)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // 256) * 256


@pytest.fixture
def warm():
    chunked_noise.warm_up("cuda")


def sample(shape, seed=7, chunk_size=16, device="cuda", dtype=torch.float32, start=0):
    return sample_chunked_noise(shape, seed=seed, chunk_size=chunk_size, device=device, dtype=dtype, start=start)


def loop(shape, seed=7, chunk_size=16, device="cuda:0", dtype=torch.float32, start=0):
    return reference.sample_chunked_noise(
        shape, seed=seed, chunk_size=chunk_size, device=device, dtype=dtype, start=start
    )


def sample_rows(shape, seeds, starts, chunk_size=16, dtype=torch.float32):
    return torch.ops.chunked_noise.sample_chunked_noise.rows(
        shape, seed=seeds, chunk_size=chunk_size, start=starts, device=torch.device("cuda"), dtype=dtype
    )


def loop_rows(shape, seeds, starts, chunk_size=16, dtype=torch.float32):
    rows = [
        loop((1, *shape[1:]), seed=seed, chunk_size=chunk_size, dtype=dtype, start=start)
        for seed, start in zip(seeds.tolist(), starts.tolist(), strict=True)
    ]
    return torch.cat(rows)


def run(code, *arguments, **environment):
    """Runs code in a fresh process that finds the package where this one does."""
    return run_python(code, *arguments, PYTHONPATH=os.environ.get("PYTHONPATH", ""), **environment)


def capture(function):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


# The values.


@pytest.mark.parametrize(("multiple", "rest"), SEAMS)
@every_dtype
def test_chunks_of_every_size(dtype, multiple, rest, launch_threads):
    numel = multiple * launch_threads + rest
    # As features, two chunks; as positions, a chunk and its beginning once more.
    assert_same_bits(sample((1, 2, numel), chunk_size=1, dtype=dtype), loop((1, 2, numel), chunk_size=1, dtype=dtype))
    shape = (1, numel + (numel + 1) // 2)
    assert_same_bits(sample(shape, chunk_size=numel, dtype=dtype), loop(shape, chunk_size=numel, dtype=dtype))


@pytest.mark.parametrize("seed", SEEDS)
@every_dtype
def test_all_64_bits_of_a_seed(dtype, seed):
    shape = (1, 40, 300)
    assert_same_bits(sample(shape, seed=seed, dtype=dtype), loop(shape, seed=seed, dtype=dtype))


@pytest.mark.parametrize("chunk_size", [1, 3, 16, 1000])
@pytest.mark.parametrize("features", [(), (1,), (3,), (4, 16), (1000,), (4096,)], ids=str)
@every_dtype
def test_windows(dtype, features, chunk_size):
    c = chunk_size
    for start, length in ((0, 1), (c - 1, 2), (c, c), (2 * c + 1, c // 2 + 1), (5, 2 * c + 3), (2**40, 3)):
        arguments = {"chunk_size": c, "dtype": dtype, "start": start}
        assert_same_bits(sample((1, length, *features), **arguments), loop((1, length, *features), **arguments))


@every_dtype
def test_windows_of_large_chunks(dtype, launch_threads):
    """Windows of less and of more than T elements, from every lane and over the end of a chunk."""
    features = 1024
    per_t = launch_threads // features
    arguments = {"chunk_size": 6 * per_t + 1, "dtype": dtype}
    for length in (1, 2, per_t // 2, 2 * per_t, 5 * per_t, 7 * per_t):
        for start in (0, per_t - 1, 2 * per_t - 1, 3 * per_t + 1, 6 * per_t):
            expected = loop((1, length, features), start=start, **arguments)
            assert_same_bits(sample((1, length, features), start=start, **arguments), expected)


@every_dtype
def test_rows_with_seeds_and_starts_of_their_own(dtype, launch_threads):
    seeds = torch.tensor([0, 1, -1, 2**62, -(2**63)], device="cuda")
    starts = torch.tensor([0, 1, 15, 16, 2**40], device="cuda")
    for length, features, chunk_size in ((1, 4096, 16), (40, 5, 16), (3, 8, 1), (3, launch_threads, 2)):
        shape = (5, length, features)
        actual = sample_rows(shape, seeds, starts, chunk_size, dtype)
        assert_same_bits(actual, loop_rows(shape, seeds, starts, chunk_size, dtype))
        on_cpu = sample_rows(shape, seeds.cpu(), starts.cpu(), chunk_size, dtype)
        assert_same_bits(on_cpu, actual)


@every_dtype
def test_tokens_of_a_flat_batch(dtype):
    positions = [0, 5, 15, 16, 5, 2**40, 17]
    seeds = [1, 2, 1, 1, 2, -1, 2**63]
    options = {"chunk_size": 16, "dtype": dtype}
    on_device = {name: torch.tensor(values, device="cuda") for name, values in (("p", positions), ("one", [7]))}
    folded = torch.tensor([(seed + 2**63) % 2**64 - 2**63 for seed in seeds])
    expected = loop_rows((len(seeds), 1, 3, 40), folded, torch.tensor(positions), **options).squeeze(1)
    for of in (seeds, folded, folded.cuda()):
        noise = gather_chunked_noise(on_device["p"], seeds=of, feature_shape=(3, 40), **options)
        assert_same_bits(noise, expected)
    out = torch.zeros(len(seeds), 3, 80, dtype=dtype, device="cuda")[..., ::2]
    assert gather_chunked_noise(on_device["p"], seeds=folded, feature_shape=(3, 40), out=out, **options) is out
    assert_same_bits(out, expected)
    one = gather_chunked_noise(on_device["p"], seeds=on_device["one"].view(()), feature_shape=(), **options)
    assert_same_bits(one, torch.stack([loop((1, 1), dtype=dtype, start=position)[0, 0] for position in positions]))


@every_dtype
def test_into_out(dtype):
    expected = loop((1, 20, 24), dtype=dtype)
    seeds, starts = [3, 2**64 - 1], [40, 7]
    rows = loop_rows((2, 20, 24), torch.tensor([3, -1]), torch.tensor(starts), dtype=dtype)
    for out in (
        torch.zeros(2, 20, 24, dtype=dtype, device="cuda"),
        torch.zeros(24, 2, 20, dtype=dtype, device="cuda").permute(1, 2, 0),
        torch.zeros(2, 40, 30, dtype=dtype, device="cuda")[:, 3:23, 5:29],
    ):
        options = {"chunk_size": 16, "device": out.device, "dtype": dtype, "out": out}
        assert sample_chunked_noise(out.shape, seed=7, **options) is out
        assert_same_bits(out, expected.expand(2, 20, 24))
        sample_chunked_noise(out.shape, seed=seeds, start=starts, **options)
        assert_same_bits(out, rows)


@every_dtype
def test_destination_that_is_not_aligned(dtype):
    memory = torch.empty(1 + 20 * 64, dtype=dtype, device="cuda")
    out = memory[1:].view(1, 20, 64)
    torch.ops.chunked_noise.fill_chunked_noise_(out, seed=7, chunk_size=16, start=0)
    assert_same_bits(out, loop((1, 20, 64), dtype=dtype))


@pytest.mark.parametrize("batch", [2, 4, 33])
@every_dtype
def test_rows_equal_the_row_alone(dtype, batch):
    single = sample((1, 50, 24), dtype=dtype)
    for row in sample((batch, 50, 24), dtype=dtype):
        assert_same_bits(row, single[0])


@pytest.mark.parametrize("shape", [(0, 8, 4), (1, 0, 4), (1, 8, 0), (0, 0, 0), (1, 8)], ids=str)
def test_empty_and_two_dimensions(shape):
    noise = sample(shape)
    torch.cuda.synchronize()
    assert noise.shape == shape
    assert noise.device == torch.device("cuda:0")
    assert_same_bits(noise, loop(shape))


def test_device_spellings():
    expected = sample((1, 8, 4))
    for device in ("cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)):
        assert_same_bits(sample((1, 8, 4), device=device), expected)


@pytest.mark.parametrize(
    ("length", "features", "chunk_size"), [(65537, 32768, 4096), (2**31 - 2, 1, 4096), (2**31 + 2, 1, 2**18)]
)
def test_more_than_2_31_elements(length, features, chunk_size):
    if torch.cuda.mem_get_info()[0] < 8 * 2**30:
        pytest.skip("needs 8 GiB of GPU memory")
    noise = sample((1, length, features), seed=0, chunk_size=chunk_size, dtype=torch.bfloat16)
    start = (length - 1) // chunk_size * chunk_size
    tail = noise[:, start:]
    assert_same_bits(tail, loop(tail.shape, seed=0, chunk_size=chunk_size, dtype=torch.bfloat16, start=start))
    end = noise[:, -4096:].float()
    assert abs(end.std().item() - 1) < 0.1


def test_chunks_over_the_32_bit_limit():
    """These are drawn by ATen."""
    if torch.cuda.mem_get_info()[0] < 8 * 2**30:
        pytest.skip("needs 8 GiB of GPU memory")
    arguments = {"chunk_size": 1025, "dtype": torch.bfloat16, "start": 1020}
    assert_same_bits(sample((1, 8, 2**20), **arguments), loop((1, 8, 2**20), **arguments))


@every_dtype
def test_distribution(dtype):
    noise = sample((1, 2**14, 256), chunk_size=64, dtype=dtype)
    values = torch.view_as_real(noise) * 2**0.5 if noise.is_complex() else noise
    values = values.double()
    assert values.isfinite().all()
    assert abs(values.mean().item()) < 3e-3
    assert abs(values.std().item() - 1) < 3e-3
    assert values.abs().max().item() > 4.5


def test_chunks_are_not_repeated():
    chunks = sample((1, 64 * 16, 8)).view(64, 16 * 8)
    correlation = torch.corrcoef(chunks) - torch.eye(64, device="cuda")
    assert correlation.abs().max() < 0.5


def test_pinned_streams(launch_threads):
    """The values of the pins for this number of threads, or of those within one launch wave, are approximate."""
    checked = 0
    for row in csv.DictReader((ROOT / "tests/data/cuda_streams.csv").read_text().splitlines()):
        chunk_size, features = int(row["chunk_size"]), int(row["features"])
        if launch_threads != int(row["threads"]) and chunk_size * features > min(launch_threads, int(row["threads"])):
            continue
        dtype = torch.float32 if row["lanes"] == "4" else torch.float64
        shape = (1, int(row["length"]), features)
        noise = sample(shape, seed=int(row["seed"]), chunk_size=chunk_size, dtype=dtype, start=int(row["start"]))
        pinned = torch.tensor([float(row[name]) for name in "abcd"], dtype=torch.float64)
        torch.testing.assert_close(noise.flatten()[-4:].double().cpu(), pinned, rtol=0, atol=1e-4)
        checked += 1
    assert checked


# State, streams, threads and devices.


def test_no_generator_moves():
    device_state, host_state = torch.cuda.get_rng_state(), torch.get_rng_state()
    first = sample((1, 64, 64))
    sample((1, 8, 2**21), chunk_size=2)
    assert torch.equal(torch.cuda.get_rng_state(), device_state)
    assert torch.equal(torch.get_rng_state(), host_state)
    torch.randn(100, device="cuda", generator=torch.Generator("cuda"))
    assert_same_bits(sample((1, 64, 64)), first)


def test_works_on_the_current_stream():
    """On another stream the noise would be written before the NaN, or read before it is there."""
    expected = loop((1, 64, 512))
    out = torch.empty_like(expected)
    torch.cuda.synchronize()
    for _ in range(50):
        with torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda._sleep(10**6)
            out.fill_(float("nan"))
            torch.ops.chunked_noise.fill_chunked_noise_(out, seed=7, chunk_size=16, start=0)
            copy = out.clone()
            fresh = sample((1, 64, 512)).clone()
        torch.cuda.synchronize()
        assert_same_bits(copy, expected)
        assert_same_bits(fresh, expected)


def test_threads():
    expected = [loop((1, 100, 64), seed=seed) for seed in range(8)]
    torch.cuda.synchronize()

    def work(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            results = [sample((1, 100, 64), seed=seed) for _ in range(100)]
            torch.cuda.current_stream().synchronize()
        return all(torch.equal(result, expected[seed]) for result in results)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))


def test_device_that_is_not_current():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    with torch.cuda.device(0):
        noise = sample((1, 64, 64), device="cuda:1")
        assert torch.cuda.current_device() == 0
    assert_same_bits(noise, loop((1, 64, 64), device="cuda:1"))


def test_compiled():
    def noisy(x, seed):
        return x + sample(x.shape, seed=seed, dtype=x.dtype)

    compiled = torch.compile(noisy, fullgraph=True)
    for seed in range(5):
        x = torch.ones(2, 40 + seed, 8, device="cuda")
        assert_same_bits(compiled(x, seed), noisy(x, seed))


# CUDA graphs.


@pytest.mark.usefixtures("warm")
@every_dtype
def test_captured_numbers_are_constants(dtype):
    """That it can be captured shows as well that no ATen generator has a part in it."""
    graph, noise = capture(lambda: sample((1, 64, 8), dtype=dtype))
    expected = loop((1, 64, 8), dtype=dtype)
    for _ in range(3):
        noise.zero_()
        graph.replay()
        assert_same_bits(noise, expected)


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("length", "features", "chunk_size"), [(1, 4096, 16), (20, 6, 16), (3, "T", 2)])
def test_captured_tensors_are_read_at_replay(length, features, chunk_size, launch_threads):
    shape = (3, length, launch_threads if features == "T" else features)
    seeds = torch.tensor([1, 2, -1], device="cuda")
    starts = torch.tensor([0, 5, 31], device="cuda")
    graph, noise = capture(lambda: sample_rows(shape, seeds, starts, chunk_size))
    for step in range(4):
        seeds += step
        starts += 7 * step
        graph.replay()
        assert_same_bits(noise, loop_rows(shape, seeds, starts, chunk_size))


@pytest.mark.usefixtures("warm")
def test_captured_decode_step():
    """The step of a server: tokens of any requests, into the buffer that the next layer reads."""
    positions = torch.tensor([0, 5, 31], device="cuda")
    seeds = torch.tensor([1, 2, -1], device="cuda")
    out = torch.empty(3, 64, device="cuda")
    options = {"chunk_size": 16, "feature_shape": (64,), "dtype": torch.float32}
    graph, _ = capture(lambda: gather_chunked_noise(positions, seeds=seeds, out=out, **options))
    for _ in range(20):
        graph.replay()
        assert_same_bits(out, loop_rows((3, 1, 64), seeds, positions).squeeze(1))
        positions += 1


@pytest.mark.usefixtures("warm")
def test_captures_in_two_threads():
    turn = threading.Lock()  # CUDA synchronizes the device when a capture begins, so they cannot overlap

    def work(seed):
        with turn:
            graph, noise = capture(lambda: sample((1, 64, 8), seed=seed))
            graph.replay()
            return noise.clone()

    with ThreadPoolExecutor(2) as pool:
        for seed, noise in enumerate(pool.map(work, range(2))):
            assert_same_bits(noise, loop((1, 64, 8), seed=seed))


CAPTURE_FIRST = """
import torch, chunked_noise
out = torch.empty(1, 8, 4, device="cuda")
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        torch.ops.chunked_noise.fill_chunked_noise_(out, seed=1, chunk_size=4, start=0)
except RuntimeError as error:
    print(error)
"""


def test_first_call_in_a_capture_names_warm_up():
    assert "chunked_noise.warm_up(device)" in run(CAPTURE_FIRST)


def test_the_reference_engine_cannot_be_captured():
    assert "CHUNKED_NOISE_ENGINE=aten" in run(CAPTURE_FIRST, CHUNKED_NOISE_ENGINE="aten")


def test_the_reference_engine_gives_the_same(tmp_path):
    code = """
import sys, torch, chunked_noise
noise = chunked_noise.sample_chunked_noise((1, 70, 4096), seed=7, chunk_size=16, device="cuda", dtype=torch.float32)
torch.save(noise, sys.argv[1])
"""
    run(code, str(tmp_path / "noise.pt"), CHUNKED_NOISE_ENGINE="aten")
    assert_same_bits(sample((1, 70, 4096)), torch.load(tmp_path / "noise.pt"))

"""torch.compile, torch.export and AOTInductor: the same bits as eager."""

import importlib.util
from pathlib import Path

import pytest
import torch
from support import assert_same_bits, run_python
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor import config as inductor
from torch.export import Dim

from chunked_noise import derive_chunk_seed, gather_chunked_noise, padded_chunks, sample_chunked_noise

LIBRARY = Path(importlib.util.find_spec("chunked_noise").origin).parent / "lib" / "libchunked_noise.so"
BACKENDS = ["eager", "aot_eager", "inductor"]
# 0 first, which a compiler makes a constant; then from inside and outside of 64 signed bits.
SEEDS = [0, 2**63, 1, 7, -1, -(2**63), 2**63 - 1, 2**63 + 1, 2**64 - 1, 2**64 - 5]
SEEDS += [3, 100, 2**40, 2**70, -(2**64), 3 - 2**65, 12, -13, 2**63 + 9, 5]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:Logical operators:UserWarning"),
]


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def add_noise(x, seed=2**64 - 5, start=0):
    return x + sample_chunked_noise(x.shape, seed=seed, chunk_size=4, device=x.device, dtype=x.dtype, start=start)


def chunk_by_chunk(x):
    noise = sample_chunked_noise(x.shape, seed=7, chunk_size=4, device=x.device, dtype=x.dtype)
    out = torch.empty_like(x)
    for chunk in padded_chunks(4, x, noise):
        inputs, chunk_noise = chunk.tensors
        out[chunk.index] = chunk.unpad(inputs.flip(1).cumsum(1) + chunk_noise)
    return out


def compile_counted(function, backend, **options):
    counter = CompileCounterWithBackend(backend)
    return torch.compile(function, fullgraph=True, backend=counter, **options), counter


@pytest.mark.parametrize("backend", BACKENDS)
def test_seeds(backend):
    compiled, counter = compile_counted(add_noise, backend)
    x = torch.ones(2, 11, 3)
    with torch.random.fork_rng():
        for seed in SEEDS:
            torch.manual_seed(seed % 5)
            assert_same_bits(compiled(x, seed), add_noise(x, seed))
            assert_same_bits(compiled(x, seed), add_noise(x, seed))
    assert counter.frame_count <= 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths_batches_and_windows(backend):
    compiled, counter = compile_counted(add_noise, backend, dynamic=True)
    for batch, length, start in [(2, 11, 3), (3, 4, 5), (2, 3, 4), (4, 5, 2**40), (5, 8, 2**62), (2, 9, 7)]:
        x = torch.ones(batch, length, 3)
        assert_same_bits(compiled(x, 9, start), add_noise(x, 9, start))
    assert counter.frame_count == 1
    for batch, length in [(1, 11), (2, 1), (0, 11), (2, 0)]:  # each a compilation: torch makes 0 and 1 constants
        x = torch.ones(batch, length, 3)
        assert_same_bits(compiled(x, 9, 3), add_noise(x, 9, 3))


def seed_of_a_layer(x, seed, layer):
    return add_noise(x, derive_chunk_seed(seed, layer)), derive_chunk_seed(seed, layer)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_derived_seeds(backend):
    """Constant arguments cost nothing; with changing ones the hash becomes symbolic arithmetic."""
    x = torch.ones(1, 6, 3)
    compiled, counter = compile_counted(lambda x: seed_of_a_layer(x, 7, 3), backend)
    assert_same_bits(compiled(x)[0], seed_of_a_layer(x, 7, 3)[0])
    assert compiled(x)[1] == derive_chunk_seed(7, 3)
    compiled, counter = compile_counted(seed_of_a_layer, backend)
    for seed in [5, 6, -1, 2**63, 2**64 - 1, 8, 2**70, 9, 10, 11]:
        noise, derived = compiled(x, seed, 3)
        assert derived == derive_chunk_seed(seed, 3)
        assert_same_bits(noise, add_noise(x, derived))
    assert counter.frame_count <= 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_derived_seeds_of_changing_chunks(backend):
    compiled, counter = compile_counted(lambda x, seed, index: (x, derive_chunk_seed(seed, index)), backend)
    for seed in [7, 8, -1, 2**63]:
        for index in [5, 6, 2**32, 2**63, 2**64 - 1]:
            assert compiled(torch.ones(1), seed, index)[1] == derive_chunk_seed(seed, index)
    assert counter.frame_count <= 3


@pytest.mark.slow
def test_derived_seeds_in_tensor_arithmetic_are_refused_by_inductor():
    compiled = torch.compile(lambda x, seed: x + derive_chunk_seed(seed, 3) % 1000, fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match="too big to convert to int64"):
        compiled(torch.ones(3, dtype=torch.int64), 5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_loop_over_padded_chunks(backend):
    compiled, counter = compile_counted(chunk_by_chunk, backend)
    lengths = [6, 4, 3] if backend == "inductor" else [6, 4, 3, 5, 8, 9, 1]
    for length in lengths:
        x = torch.arange(2.0 * length * 3).reshape(2, length, 3)
        assert_same_bits(compiled(x), chunk_by_chunk(x))
    assert counter.frame_count == len(lengths)  # the loop is unrolled


def test_loops_that_end_early_or_leave_the_graph():
    x = torch.arange(12.0).reshape(1, 6, 2)
    (first, *rest) = torch.compile(lambda x: padded_chunks(4, x), fullgraph=True, backend="eager")(x)
    assert (first.positions, len(rest)) == (slice(0, 4), 1)
    assert torch.equal(rest[0].unpad(rest[0].tensors[0]), x[:, 4:])

    def head(x):
        for chunk in padded_chunks(4, x):
            return chunk.tensors[0]

    assert torch.equal(torch.compile(head, fullgraph=True, backend="eager")(x), x[:, :4])


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients(backend):
    w = torch.ones(2, 6, 3)

    def gradient(function):
        x = torch.full((2, 6, 3), 0.5, requires_grad=True)
        function(x).backward()
        return x.grad

    def loss(x):
        return (chunk_by_chunk(add_noise(x) ** 2) * w.cumsum(1)).sum()

    assert_same_bits(gradient(torch.compile(loss, fullgraph=True, backend=backend)), gradient(loss))


@pytest.mark.parametrize("freezing", [False, True])
def test_writes_by_the_caller_do_not_leak(freezing):
    """Neither into a constant that the compiler folded, nor into an equal result that it merged."""

    def function(x):
        one = sample_chunked_noise((1, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=x.dtype)
        other = sample_chunked_noise((1, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=x.dtype)
        return x + 1, one, other

    expected = sample_chunked_noise((1, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=torch.float32)
    with torch.no_grad(), inductor.patch(freezing=freezing):
        compiled = torch.compile(function, fullgraph=True)
        for _ in range(3):
            _, one, other = compiled(torch.ones(3))
            assert_same_bits(one, expected)
            one.zero_()
            assert_same_bits(other, expected)
            other.fill_(1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_writes_in_the_graph(backend):
    """As after .contiguous(), which eager code must call: it refuses the one write and makes the other to all rows."""

    def function(x):
        noise = sample_chunked_noise((2, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=x.dtype)
        noise.mul_(2)
        noise[0].add_(1)
        return x + noise, sample_chunked_noise((2, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=x.dtype)

    noise = sample_chunked_noise((2, 6, 2), seed=7, chunk_size=4, device="cpu", dtype=torch.float32)
    with pytest.raises(RuntimeError, match="refers to a single memory location"):
        function(torch.ones(2, 6, 2))
    written = noise.contiguous().mul_(2)
    written[0].add_(1)
    changed, again = torch.compile(function, fullgraph=True, backend=backend)(torch.ones(2, 6, 2))
    assert_same_bits(changed, 1 + written)
    assert_same_bits(again, noise)
    assert again.stride() == noise.stride()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_out_and_gather(backend):
    def function(out, seed, start):
        sample_chunked_noise(out.shape, seed=seed, chunk_size=4, device="cpu", dtype=out.dtype, start=start, out=out)
        flat = gather_chunked_noise(start, seeds=seed, chunk_size=4, feature_shape=(3,), dtype=out.dtype)
        return flat, sample_chunked_noise(
            out.shape, seed=seed, chunk_size=4, device="cpu", dtype=out.dtype, start=start
        )

    compiled, counter = compile_counted(function, backend, dynamic=True)
    for batch in (2, 5):
        seed, start = torch.arange(batch) - 1, torch.arange(batch) * 3
        out, expected_out = torch.zeros(batch, 6, 3), torch.zeros(batch, 6, 3)
        for actual, expected in zip(compiled(out, seed, start), function(expected_out, seed, start), strict=True):
            assert_same_bits(actual, expected)
        assert_same_bits(out, expected_out)
    assert counter.frame_count == 1


def test_default_device_and_dtype():
    compiled = torch.compile(add_noise, fullgraph=True, backend="aot_eager")
    x = torch.ones(2, 6, 3)
    expected = add_noise(x)
    with torch.device("meta"):
        assert_same_bits(compiled(x), expected)
        assert_same_bits(torch.compile(chunk_by_chunk, fullgraph=True, backend="eager")(x), chunk_by_chunk(x))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        assert_same_bits(compiled(x), expected)
    finally:
        torch.set_default_dtype(before)


def test_errors_name_the_value():
    with pytest.raises(Exception, match="start must not be negative, got -1"):
        torch.compile(add_noise, fullgraph=True, backend="eager")(torch.ones(1, 3, 2), 7, -1)
    compiled = torch.compile(add_noise, fullgraph=True, backend="aot_eager", dynamic=True)
    compiled(torch.ones(2, 3, 2), 7, 5)
    with pytest.raises(ValueError, match="start must not be negative, got -3"):
        compiled(torch.ones(2, 3, 2), 7, -3)


def test_cpp_wrapper():
    """A seed is an int64_t in generated C++: one that does not fit is refused, not cut."""
    with inductor.patch(cpp_wrapper=True):
        compiled = torch.compile(add_noise, fullgraph=True, dynamic=True)
        for length, seed in [(11, 5), (4, -1), (3, 2**63 - 1), (5, -(2**63))]:
            x = torch.ones(2, length, 3)
            assert_same_bits(compiled(x, seed), add_noise(x, seed))
        with pytest.raises(Exception, match="too big to convert to int64"):
            compiled(torch.ones(2, 11, 3), 2**63)


class Layer(torch.nn.Module):
    def forward(self, x, seed: int = 2**64 - 5):
        return add_noise(x, seed)


class Chunked(torch.nn.Module):
    def forward(self, x):
        return chunk_by_chunk(x)


LENGTHS = [1, 3, 4, 5, 4096]
SEQUENCE = Dim("sequence", min=1, max=4096)
# Runs saved models in a process that is given nothing but the library of operators, or not even that.
RUN_SAVED = """
import sys
sys.stderr = sys.stdout  # where torch.export says what is missing
import torch
folder, library = sys.argv[1:]
if library:
    torch.ops.load_library(library)
for name, load in {
    "exported.pt2": lambda path: torch.export.load(path).module(),
    "package.pt2": torch._inductor.aoti_load_package,
    "scripted.pt": torch.jit.load,
}.items():
    try:
        run = load(f"{folder}/{name}")
        results = [run(torch.ones(2, length, 3), torch.tensor([-1, 7])) for length in (1, 3, 4, 5, 4096)]
        torch.save(results, f"{folder}/{name}.results")
    except Exception as error:
        print(name, error)
assert "chunked_noise" not in sys.modules
"""
SAVED = ["exported.pt2", "package.pt2", "scripted.pt"]


class Served(torch.nn.Module):
    """One seed that is a constant of the program, and a seed for each row, which is an input."""

    def forward(self, x, seeds):
        rows = sample_chunked_noise(x.shape, seed=seeds, chunk_size=4, device=x.device, dtype=x.dtype, start=3)
        return torch.stack([add_noise(x), rows])


class Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        one = torch.ops.chunked_noise.sample_chunked_noise(
            x.shape, seed=-5, chunk_size=4, start=0, device=x.device, dtype=x.dtype
        )
        rows = torch.ops.chunked_noise.sample_chunked_noise(
            x.shape, seed=seeds, chunk_size=4, start=torch.full([], 3), device=x.device, dtype=x.dtype
        )
        return torch.stack([x + one, rows])


def test_saved_models_in_another_process(tmp_path):
    seeds = torch.tensor([-1, 7])
    exported = torch.export.export(Served(), (torch.ones(2, 37, 3), seeds), dynamic_shapes=({1: SEQUENCE}, None))
    torch.export.save(exported, tmp_path / "exported.pt2")
    torch._inductor.aoti_compile_and_package(exported, package_path=str(tmp_path / "package.pt2"))
    torch.jit.save(torch.jit.script(Scripted()), tmp_path / "scripted.pt")
    run_python(RUN_SAVED, str(tmp_path), str(LIBRARY))
    for name in SAVED:
        for length, result in zip(LENGTHS, torch.load(tmp_path / f"{name}.results"), strict=True):
            assert_same_bits(result, Served()(torch.ones(2, length, 3), seeds))
    errors = run_python(RUN_SAVED, str(tmp_path), "")
    assert "failed to resolve torch.ops.chunked_noise.sample_chunked_noise" in errors
    assert "package.pt2 Could not find schema for chunked_noise::sample_chunked_noise" in errors
    assert "Unknown builtin op: chunked_noise::sample_chunked_noise" in errors


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_a_seed_argument(strict):
    exported = torch.export.export(
        Layer(), (torch.ones(2, 37, 3), 9), dynamic_shapes=({1: SEQUENCE}, Dim.DYNAMIC), strict=strict
    ).module()
    x = torch.ones(2, 11, 3)
    for seed in [0, 1, 9, -1, 2**63 - 1, -(2**63)]:
        assert_same_bits(exported(x, seed), add_noise(x, seed))
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(x, 2**63)


def test_export_of_a_derived_seed():
    class Derived(torch.nn.Module):
        def forward(self, x, seed: int):
            return add_noise(x, derive_chunk_seed(seed, 3))

    x = torch.ones(2, 11, 3)
    assert_same_bits(torch.export.export(Derived(), (x, 9)).module()(x, 9), Derived()(x, 9))
    with pytest.raises(Exception, match=r"[Oo]perator"):
        torch.export.export(Derived(), (x, 9), dynamic_shapes=({}, Dim.DYNAMIC))


@pytest.mark.parametrize("strict", [False, True])
def test_export_of_a_loop(strict):
    """It has one length, and refuses another."""
    x = torch.arange(66.0).reshape(2, 11, 3)
    exported = torch.export.export(Chunked(), (x,), strict=strict).module()
    assert_same_bits(exported(x), chunk_by_chunk(x))
    with pytest.raises(AssertionError, match="Guard failed"):
        exported(x[:, :10])
    with pytest.raises(Exception, match="specialized it to be a constant"):
        torch.export.export(Chunked(), (x,), dynamic_shapes=({1: SEQUENCE},), strict=strict)


@pytest.mark.slow
def test_package_of_a_loop(tmp_path):
    """Torch checks the static sizes of a package only when asked to."""
    x = torch.arange(66.0).reshape(2, 11, 3)
    path = str(tmp_path / "loop.pt2")
    torch._inductor.aoti_compile_and_package(torch.export.export(Chunked(), (x,)), package_path=path)
    assert_same_bits(torch._inductor.aoti_load_package(path)(x), chunk_by_chunk(x))
    code = """
import sys, torch
torch.ops.load_library(sys.argv[2])
try:
    torch._inductor.aoti_load_package(sys.argv[1])(torch.ones(2, 10, 3))
except RuntimeError as error:
    print("refused")
"""
    assert run_python(code, path, str(LIBRARY), AOTI_RUNTIME_CHECK_INPUTS="1") == "refused\n"

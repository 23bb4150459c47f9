"""Modes, transforms and processes of PyTorch other than compilers: the same bits as a plain call."""

import copy
import pickle

import pytest
import torch
from support import DTYPES, assert_same_bits, run_python
from torch import func
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from chunked_noise import derive_chunk_seed, gather_chunked_noise, padded_chunks, sample_chunked_noise

ops = torch.ops.chunked_noise


def sample(shape, seed=7, dtype=torch.float32, **options):
    return sample_chunked_noise(shape, seed=seed, chunk_size=4, device="cpu", dtype=dtype, **options)


class Layer(torch.nn.Module):
    """A layer of both functions, with a weight."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([0.5, 1.5, 2.5]))

    def forward(self, x):
        noisy = x + sample(x.shape, dtype=x.dtype)
        outputs = [chunk.unpad(chunk.tensors[0].cumsum(1)) for chunk in padded_chunks(4, noisy * self.weight)]
        return torch.cat(outputs, dim=1)


class PlainLayer(Layer):
    """The same without a function of ours: the noise is a constant."""

    def forward(self, x):
        noisy = (x + sample((1, *x.shape[1:]), dtype=x.dtype).clone()) * self.weight
        return torch.cat([part.cumsum(1) for part in noisy.split(4, dim=1)], dim=1)


@pytest.fixture
def x(generator):
    return torch.randn(2, 6, 3, generator=generator)


def test_grad_and_functional_call(x):
    def gradients(layer):
        parameters = dict(layer.named_parameters())

        def loss(parameters, x):
            return func.functional_call(layer, parameters, (x,)).square().sum()

        of_parameters, of_x = func.grad(loss, argnums=(0, 1))(parameters, x)
        per_row = func.vmap(func.grad(loss), in_dims=(None, 0), randomness="error")(parameters, x[:, None])
        return of_parameters["weight"], of_x, per_row["weight"]

    for actual, expected in zip(gradients(Layer()), gradients(PlainLayer()), strict=True):
        assert_same_bits(actual, expected)


def test_forward_mode_and_jacobians(x):
    def derivatives(layer):
        return (
            *func.jvp(layer, (x,), (torch.ones_like(x),)),
            func.jacrev(layer)(x),
            func.jacfwd(layer)(x),
            func.vjp(layer, x)[1](torch.ones(2, 6, 3))[0],
        )

    for actual, expected in zip(derivatives(Layer()), derivatives(PlainLayer()), strict=True):
        assert_same_bits(actual, expected)


def test_functionalize(x):
    layer = Layer()
    assert_same_bits(func.functionalize(layer)(x), layer(x))

    with pytest.raises(RuntimeError, match="fill_chunked_noise_"):  # torch takes no operator of others that writes
        func.functionalize(lambda out: sample(out.shape, out=out))(torch.zeros(2, 6, 3))


def test_vmap_over_seeds_and_writes():
    """Operators that take tensors go through torch's loop; one that writes is refused."""
    seeds, positions = torch.arange(3), torch.arange(6).reshape(2, 3)

    def gather(positions):
        return gather_chunked_noise(positions, seeds=7, chunk_size=4, feature_shape=(2,), dtype=torch.float32)

    for noise, seed in zip(torch.vmap(lambda seed: sample((1, 6, 2), seed=seed[None]))(seeds), seeds, strict=True):
        assert_same_bits(noise, sample((1, 6, 2), seed=int(seed)))
    for noise, of in zip(torch.vmap(gather)(positions), positions, strict=True):
        assert_same_bits(noise, gather(of))
    with pytest.raises(RuntimeError, match="Batching rule not implemented for chunked_noise::fill_chunked_noise_"):
        torch.vmap(lambda out: sample(out.shape, out=out))(torch.zeros(3, 1, 6, 2))


def test_checkpoint_without_the_state_of_generators(x):
    """The forward pass that is run again draws the same noise, so no state of a generator has to be kept for it."""
    layer = Layer()

    def gradient(run):
        layer.zero_grad()
        run().square().sum().backward()
        return layer.weight.grad.clone()

    with torch.random.fork_rng():
        again = gradient(lambda: checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False))
    assert_same_bits(again, gradient(lambda: layer(x)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(x, dtype):
    with torch.random.fork_rng():
        layer = torch.nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=dtype):
        assert_same_bits(sample((2, 6, 3)), sample((2, 6, 3)))
        assert sample((2, 6, 3)).dtype == torch.float32
        inside = layer(x + sample(x.shape))
    with torch.autocast("cpu", dtype=dtype):
        outside = layer(x + sample(x.shape).clone())
    assert inside.dtype == dtype
    assert_same_bits(inside, outside)


@pytest.mark.parametrize("dtype", DTYPES)
def test_deterministic_algorithms(dtype):
    """In this mode torch fills new memory with NaN."""
    x = torch.ones(2, 6, 3)
    expected = sample((2, 6, 3), dtype=dtype).clone(), Layer()(x)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory
        actual = sample((2, 6, 3), dtype=dtype), Layer()(x)
        assert_same_bits(sample((2, 6, 3), dtype=dtype, out=torch.empty(2, 6, 3, dtype=dtype)), expected[0])
    finally:
        torch.use_deterministic_algorithms(False)
    for one, other in zip(actual, expected, strict=True):
        assert_same_bits(one, other)


def test_symbolic_tracing_with_fake_tensors(x):
    layer = Layer()
    graph = make_fx(lambda x: x + sample(x.shape), tracing_mode="symbolic")(x)
    for length in (2, 4, 9):
        longer = torch.ones(2, length, 3)
        assert_same_bits(graph(longer), longer + sample(longer.shape))
    assert_same_bits(make_fx(layer, tracing_mode="fake", _allow_non_fake_inputs=True)(x)(x), layer(x))
    real = list(padded_chunks(4, x))
    with FakeTensorMode() as mode:
        fake = list(padded_chunks(4, mode.from_tensor(x)))
    for one, other in zip(fake, real, strict=True):
        assert one.positions == other.positions
        assert (one.tensors[0].shape, one.tensors[0].stride()) == (other.tensors[0].shape, other.tensors[0].stride())


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_opcheck_of_gather_and_of_no_chunks(count, dtype):
    for seeds in (torch.tensor(3), torch.arange(count) - 1):
        options = {"seeds": seeds, "chunk_size": 4, "feature_shape": [3], "dtype": dtype}
        torch.library.opcheck(ops.gather_chunked_noise.default, (5 * torch.arange(count),), options)
    torch.library.opcheck(ops.padded_chunks.default, (torch.zeros(count, 0, 3, dtype=dtype, requires_grad=True), 4))


@torch.fx.wrap
def wrapped_noise_like(x):
    return sample(x.shape, dtype=x.dtype)


def test_fx_symbolic_trace(x):
    """torch.fx records values without a type: it refuses the functions, and takes a wrapped one."""
    graph = torch.fx.symbolic_trace(lambda x: x + wrapped_noise_like(x))
    assert_same_bits(graph(x), x + sample(x.shape))
    with pytest.raises(TypeError, match=r"dtype must be a torch\.dtype, got Proxy"):
        torch.fx.symbolic_trace(lambda x: x + sample(x.shape, dtype=x.dtype))


def test_functions_and_layers_pickle_and_copy(x):
    for function in (sample_chunked_noise, gather_chunked_noise, derive_chunk_seed, padded_chunks):
        assert pickle.loads(pickle.dumps(function)) is function
    layer = Layer()
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_same_bits(twin(x), layer(x))
    noise = sample((3, 6, 2))
    assert copy.deepcopy(noise).stride() == noise.stride()
    assert_same_bits(pickle.loads(pickle.dumps(noise)), noise)


PROCESSES = """
import os, sys, torch, warnings
from torch.utils.data import DataLoader, Dataset
from chunked_noise import gather_chunked_noise, sample_chunked_noise
warnings.simplefilter("ignore")  # Python's about a fork with threads
torch.set_num_threads(2)

def sample(shape, seed):
    return sample_chunked_noise(shape, seed=seed, chunk_size=4, device="cpu", dtype=torch.float32)

class Noise(Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return sample((1, 300, 500), index)[0], gather_chunked_noise(
            [index], seeds=[1], chunk_size=4, feature_shape=(3,), dtype=torch.float32)

def main():
    expected = [Noise()[index] for index in range(8)]  # the engine is used, on two threads, before the fork
    kind = sys.argv[1]
    if kind == "fork":
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # as in every worker of torch: its pool of threads does not survive a fork
            same = all(torch.equal(noise, Noise()[index][0]) for index, (noise, _) in enumerate(expected))
            os._exit(0 if same else 1)
        assert os.waitpid(child, 0)[1] == 0
    else:
        for worker in ("fork", "spawn"):
            loader = DataLoader(Noise(), batch_size=2, num_workers=2, multiprocessing_context=worker)
            for index, (noise, flat) in enumerate(loader):
                for item in range(2):
                    assert torch.equal(noise[item], expected[2 * index + item][0])
                    assert torch.equal(flat[item], expected[2 * index + item][1])
    assert torch.equal(sample((1, 300, 500), 0)[0], expected[0][0])

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("kind", ["fork", "workers"])
def test_processes(kind, tmp_path):
    program = tmp_path / "program.py"  # a spawned worker imports the main program, so it is a file
    program.write_text(PROCESSES)
    run_python(
        "import runpy, sys; sys.argv[:] = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')",
        str(program),
        kind,
        timeout=100,
    )

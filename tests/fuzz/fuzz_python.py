"""Coverage-guided fuzzing of every Python function: `make fuzz-python`. libFuzzer's options apply.

Needs atheris. Any arguments may only give values equal to the reference, or a documented exception with one sentence.
"""

import contextlib
import math
import sys
import warnings

import atheris

with atheris.instrument_imports(include=["chunked_noise"]):
    import chunked_noise
    from chunked_noise import reference

import torch

warnings.simplefilter("ignore")
torch.set_num_threads(2)
DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.complex32),
    *(torch.int64, torch.bool, torch.uint8, torch.float8_e4m3fn, "float32", None),
]
NOISE_DTYPES = DTYPES[:7]
DOCUMENTED = (ValueError, TypeError, RuntimeError)
MAX_NUMEL = 50_000  # what is compared with the reference


class RefusedError(Exception):
    """The library answered with a documented exception. What is raised elsewhere is a fault of this program."""


def call(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except DOCUMENTED as error:
        sentence = str(error)
        assert sentence
        assert "INTERNAL ASSERT" not in sentence
        raise RefusedError from error


def sample_chunked_noise(*arguments, **options):
    return call(chunked_noise.sample_chunked_noise, *arguments, **options)


def gather_chunked_noise(*arguments, **options):
    return call(chunked_noise.gather_chunked_noise, *arguments, **options)


def padded_chunks(*arguments):
    return call(lambda: list(chunked_noise.padded_chunks(*arguments)))


class Source:
    """Draws arguments from the fuzzer's bytes."""

    def __init__(self, data):
        self.data = atheris.FuzzedDataProvider(data)

    def integer(self, small):
        kind = self.data.ConsumeIntInRange(0, 11)
        if kind < 8:
            return self.data.ConsumeIntInRange(0, small)
        if kind == 8:  # around a power of two
            return (
                (self.data.ConsumeIntInRange(-1, 1) << 64)
                + (1 << self.data.ConsumeIntInRange(0, 66)) * (1 - 2 * self.data.ConsumeIntInRange(0, 1))
                + self.data.ConsumeIntInRange(-2, 2)
            )
        if kind == 9:
            return self.data.ConsumeInt(8)
        if kind == 10:
            return self.data.PickValueInList([True, None, 1.0, "1", b"1", [], float("nan"), torch.tensor(3), 1 << 9000])
        return -self.data.ConsumeIntInRange(0, small)

    def shape(self):
        return [self.integer(12) for _ in range(self.data.ConsumeIntInRange(0, 4))]

    def tensor(self, shape, dtype):
        """A tensor of any layout."""
        layout = self.data.ConsumeIntInRange(0, 5)
        if layout == 0:
            return torch.zeros([2 * size for size in shape], dtype=dtype)[tuple(slice(None, None, 2) for _ in shape)]
        if layout == 1:
            return torch.zeros(shape[::-1], dtype=dtype).permute(list(range(len(shape)))[::-1])
        if layout == 2:
            return torch.zeros([1] * len(shape), dtype=dtype).expand(shape)
        if layout == 3 and dtype.is_complex:
            return torch.zeros(shape, dtype=dtype).conj()
        if layout == 4:
            return torch.zeros(shape, dtype=dtype, device="meta")
        return torch.zeros(shape, dtype=dtype)

    def many(self, count):
        """An integer, several, or a tensor of them."""
        kind = self.data.ConsumeIntInRange(0, 3)
        if kind == 0:
            return self.integer(300)
        count += self.data.ConsumeIntInRange(-1, 1) if self.data.ConsumeIntInRange(0, 7) == 0 else 0
        wild = self.data.ConsumeIntInRange(0, 3) == 0
        values = [self.integer(300) if wild else self.data.ConsumeIntInRange(0, 300) for _ in range(max(count, 0))]
        if kind == 1 or not all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
            return values
        dtype = self.data.PickValueInList([torch.int64, torch.int64, torch.int64, torch.float32, torch.bool])
        return torch.tensor(values, dtype=dtype)


def same_bits(a, b):
    a, b = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (a, b))
    a_bytes, b_bytes = (t.clone(memory_format=torch.contiguous_format).view(-1).view(torch.uint8) for t in (a, b))
    return a.shape == b.shape and torch.equal(a_bytes, b_bytes)


def of_row(values, row):
    """What one value for all rows, or one for each, says of a row."""
    one = values.dim() == 0 if isinstance(values, torch.Tensor) else not isinstance(values, list)
    return int(values if one else values[row])


def comparable(chunk_size, *sizes):
    """Whether the reference, which draws every chunk, takes no time."""
    numel = math.prod(max(size, 1) for size in sizes)
    return numel <= MAX_NUMEL and chunk_size * numel <= 4 * MAX_NUMEL


@atheris.instrument_func
def sample(source):
    shape, chunk_size = source.shape(), source.integer(20)
    rows = shape[0] if shape and type(shape[0]) is int and 0 <= shape[0] <= 64 else 1
    seed, start = source.many(rows), source.many(rows)
    dtype = source.data.PickValueInList(DTYPES)
    device = source.data.PickValueInList(["cpu", "cpu", "cpu", "meta", "cuda", "nowhere", torch.device("cpu"), None])
    plain = all(type(size) is int and size >= 0 for size in shape)
    if math.prod(max(int(size), 1) for size in shape if isinstance(size, int | torch.Tensor)) > 2**22:
        return  # allocating it is torch's business
    out = None
    if plain and dtype in NOISE_DTYPES and source.data.ConsumeIntInRange(0, 2) == 0:
        out = source.tensor(shape, dtype)
    noise = sample_chunked_noise(
        shape, seed=seed, chunk_size=chunk_size, device=device, dtype=dtype, start=start, out=out
    )
    assert out is None or noise is out
    assert list(noise.shape) == [int(size) for size in shape]
    if noise.device.type != "cpu" or not comparable(int(chunk_size), *noise.shape[1:]):
        return
    for row in range(min(noise.shape[0], 64)):
        one_seed, one_start = of_row(seed, row), of_row(start, row)
        expected = reference.sample_chunked_noise(
            (1, *noise.shape[1:]), seed=one_seed, chunk_size=int(chunk_size), device="cpu", dtype=dtype, start=one_start
        )
        assert same_bits(noise[row : row + 1], expected), (shape, seed, chunk_size, dtype, start)


@atheris.instrument_func
def gather(source):
    count = source.data.ConsumeIntInRange(0, 20)
    positions, seeds, chunk_size = source.many(count), source.many(count), source.integer(20)
    features = [source.data.ConsumeIntInRange(0, 9) for _ in range(source.data.ConsumeIntInRange(0, 2))]
    dtype = source.data.PickValueInList(DTYPES)
    out = None
    if dtype in NOISE_DTYPES and source.data.ConsumeIntInRange(0, 2) == 0:
        out = source.tensor([count, *features], dtype)
    noise = gather_chunked_noise(
        positions, seeds=seeds, chunk_size=chunk_size, feature_shape=features, dtype=dtype, out=out
    )
    assert out is None or noise is out
    if noise.device.type != "cpu" or not comparable(int(chunk_size), *features):
        return
    for row in range(min(noise.shape[0], 64)):
        seed = of_row(seeds, row)
        expected = reference.sample_chunked_noise(
            (1, 1, *features),
            seed=seed,
            chunk_size=int(chunk_size),
            device="cpu",
            dtype=dtype,
            start=int(positions[row]),
        )
        assert same_bits(noise[row], expected[0, 0]), (positions, seeds, chunk_size, features, dtype)


@atheris.instrument_func
def split(source):
    chunk_size = source.integer(20)
    if type(chunk_size) is int and chunk_size > 2**10:
        return  # the padding would be real
    tensors = []
    for _ in range(source.data.ConsumeIntInRange(0, 3)):
        shape = [source.data.ConsumeIntInRange(0, 12) for _ in range(source.data.ConsumeIntInRange(0, 4))]
        tensors.append(source.tensor(shape, source.data.PickValueInList(NOISE_DTYPES)))
    for chunk in padded_chunks(chunk_size, *tensors):
        for tensor, padded in zip(tensors, chunk.tensors, strict=True):
            if tensor.device.type == "cpu":
                assert same_bits(chunk.unpad(padded), tensor[chunk.index])
                assert not padded[:, chunk.positions.stop - chunk.positions.start :].any()


@atheris.instrument_func
def derive(source):
    seed, chunk_index = source.integer(300), source.integer(300)
    derived = call(chunked_noise.derive_chunk_seed, seed, chunk_index)
    assert derived == reference.derive_chunk_seed(int(seed), int(chunk_index))


def test_one_input(data):
    source = Source(data)
    function = source.data.PickValueInList([sample, sample, gather, split, derive])
    with contextlib.suppress(RefusedError):
        function(source)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()

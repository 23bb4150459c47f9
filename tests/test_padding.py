"""padded_chunks and PaddedChunk."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support import assert_same_bits

from chunked_noise import PaddedChunk, padded_chunks, reference

ALL_DTYPES = [
    torch.bool,
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    *(torch.complex32, torch.complex64, torch.complex128),
]


def of_dtype(shape, dtype):
    if dtype == torch.bool:
        return torch.ones(shape, dtype=dtype)
    return torch.arange(1, 1 + int(np.prod(shape))).reshape(shape).remainder(7).add(1).to(dtype)


@pytest.mark.parametrize("dtype", ALL_DTYPES)
@pytest.mark.parametrize("length", [1, 3, 4, 5, 7, 8, 9])
def test_every_dtype(dtype, length):
    x = of_dtype((2, length, 3), dtype)
    chunks = list(padded_chunks(4, x))
    assert len(chunks) == -(-length // 4)
    out = torch.zeros_like(x)
    for chunk, (positions, (expected,)) in zip(chunks, reference.padded_chunks(4, x), strict=True):
        assert chunk.positions == positions
        assert_same_bits(chunk.tensors[0], expected)
        out[chunk.index] = chunk.unpad(chunk.tensors[0])
    assert_same_bits(out, x)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3))
def test_equals_the_reference(chunk_size, length, batch, features):
    tensors = (of_dtype((batch, length, *features), torch.float32), of_dtype((1, length), torch.bool))
    chunks = list(padded_chunks(chunk_size, *tensors))
    expected = list(reference.padded_chunks(chunk_size, *tensors))
    assert len(chunks) == len(expected)
    for chunk, (positions, padded) in zip(chunks, expected, strict=True):
        assert chunk.positions == positions
        for actual, right in zip(chunk.tensors, padded, strict=True):
            assert_same_bits(actual, right)
        assert chunk.unpad(chunk.tensors[0]).shape[1] == positions.stop - positions.start


def test_slices():
    assert [c.positions for c in padded_chunks(3, torch.arange(11)[None])] == [
        slice(0, 3),
        slice(3, 6),
        slice(6, 9),
        slice(9, 11),
    ]


def test_every_rank_pads_dimension_1():
    tensors = [torch.ones(2, 5), torch.ones(2, 5, 3), torch.ones(4, 5, 3, 2)]
    last = list(padded_chunks(4, *tensors))[-1]
    assert [tuple(t.shape) for t in last.tensors] == [(2, 4), (2, 4, 3), (4, 4, 3, 2)]
    for tensor in last.tensors:
        assert tensor[:, :1].eq(1).all()
        assert tensor[:, 1:].eq(0).all()


def test_mask_is_false_on_padding():
    last = list(padded_chunks(4, torch.ones(1, 6, 2), torch.ones(1, 6, dtype=torch.bool)))[-1]
    assert last.tensors[1].tolist() == [[True, True, False, False]]
    assert last.positions == slice(4, 6)
    assert last.index == (slice(None), slice(4, 6))


def test_views_and_copies():
    x = torch.zeros(2, 6, 3)
    chunks = padded_chunks(4, x)
    full = next(chunks)
    assert full.tensors[0]._base is x
    full.tensors[0].fill_(1)
    assert x[:, :4].eq(1).all()
    x[:, 5] = 5  # seen by the padded copy too, which is made when it is asked for
    padded = next(chunks)
    assert padded.tensors[0]._base is None
    assert padded.tensors[0][:, 1].eq(5).all()
    padded.tensors[0].fill_(9)
    assert not x.eq(9).any()
    with pytest.raises(StopIteration):
        next(chunks)


def test_unpad_is_a_view():
    chunk = list(padded_chunks(4, torch.zeros(2, 6, 3)))[-1]
    y = torch.zeros(5, 4, 7)
    chunk.unpad(y).fill_(1)
    assert y[:, :2].eq(1).all()
    assert y[:, 2:].eq(0).all()


def test_gradients():
    x = torch.ones(1, 6, 2, dtype=torch.float64, requires_grad=True)
    weights = torch.arange(1.0, 9, dtype=torch.float64)[None, :, None]
    total = sum((chunk.tensors[0] * weights[:, 4 * k : 4 * k + 4]).sum() for k, chunk in enumerate(padded_chunks(4, x)))
    total.backward()
    assert torch.equal(x.grad, weights[:, :6].expand(1, 6, 2))
    assert torch.autograd.gradcheck(lambda t: [c.tensors[0] for c in padded_chunks(4, t)], (x,))


def test_zero_length_and_zero_batch():
    assert list(padded_chunks(4, torch.zeros(2, 0, 3))) == []
    chunks = list(padded_chunks(4, torch.zeros(0, 5, 3)))
    assert [tuple(c.tensors[0].shape) for c in chunks] == [(0, 4, 3)] * 2


def test_chunk_size_beyond_the_sequence():
    (chunk,) = padded_chunks(10, torch.ones(1, 3))
    assert chunk.tensors[0].shape == (1, 10)
    (chunk,) = padded_chunks(3, torch.ones(1, 3))
    assert chunk.positions == slice(0, 3)


def test_strided_input():
    x = torch.arange(60).reshape(5, 6, 2).transpose(0, 1)  # (6, 5, 2)
    rebuilt = torch.cat([c.unpad(c.tensors[0]) for c in padded_chunks(3, x)], dim=1)
    assert torch.equal(rebuilt, x)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, torch.ones(1, 3)), ValueError, "chunk_size must be positive, got 0"),
        ((-1, torch.ones(1, 3)), ValueError, "chunk_size must be positive, got -1"),
        ((2**63, torch.ones(1, 3)), ValueError, "chunk_size must be less than"),
        ((4,), ValueError, "at least one tensor"),
        ((4, torch.ones(3)), ValueError, r"at least 2 dimensions .* got shape \(3,\)"),
        ((4, torch.tensor(1.0)), ValueError, "at least 2 dimensions"),
        ((4, torch.ones(2, 5), torch.ones(2, 0)), ValueError, r"same sequence length, got \[5, 0\]"),
        ((1.5, torch.ones(1, 3)), TypeError, "chunk_size must be an integer, got 1.5"),
        (("4", torch.ones(1, 3)), TypeError, "chunk_size must be an integer"),
        ((4, [[1, 2]]), TypeError, "splits tensors, got"),
    ],
)
def test_errors_come_at_the_call(arguments, error, message):
    with pytest.raises(error, match=message):
        padded_chunks(*arguments)


def test_integers_of_other_types():
    assert len(list(padded_chunks(np.int64(2), torch.ones(1, 3)))) == 2
    assert len(list(padded_chunks(True, torch.ones(1, 3)))) == 3


@pytest.mark.parametrize("value", [5, None, np.zeros((1, 4))])
def test_unpad_of_no_tensor(value):
    chunk = list(padded_chunks(4, torch.ones(1, 6)))[-1]
    with pytest.raises(TypeError, match="unpad takes a tensor, got"):
        chunk.unpad(value)


def test_tensors_without_strides():
    with pytest.raises(ValueError, match="must be strided, got layout Sparse"):
        list(padded_chunks(4, torch.ones(1, 6).to_sparse()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors(layout):
    nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=layout)
    with pytest.raises(ValueError, match="must be strided, got a nested one"):
        padded_chunks(4, nested)


@pytest.mark.parametrize("shape", [(1, 3), (1, 6), (4,), ()])
def test_unpad_errors(shape):
    chunk = list(padded_chunks(4, torch.ones(1, 6)))[-1]
    with pytest.raises(ValueError, match="must be the chunk size 4"):
        chunk.unpad(torch.ones(shape))


def test_is_a_dataclass_that_copies_and_pickles():
    chunk = list(padded_chunks(4, torch.arange(12.0).reshape(1, 6, 2)))[-1]
    assert [field.name for field in dataclasses.fields(PaddedChunk)] == ["positions", "tensors"]
    for twin in (copy.copy(chunk), copy.deepcopy(chunk), pickle.loads(pickle.dumps(chunk))):
        assert twin.positions == chunk.positions
        assert twin.index == chunk.index
        assert torch.equal(twin.tensors[0], chunk.tensors[0])
    assert PaddedChunk(positions=slice(0, 1), tensors=(torch.ones(1, 2),)).unpad(torch.ones(1, 2)).shape == (1, 1)


def test_device_and_default_device():
    with torch.device("meta"):
        (chunk,) = padded_chunks(4, torch.ones(1, 3, device="cpu"))
        assert chunk.tensors[0].device.type == "cpu"
    (chunk,) = padded_chunks(4, torch.ones(1, 3, device="meta"))
    assert chunk.tensors[0].device.type == "meta"
    assert chunk.tensors[0].shape == (1, 4)

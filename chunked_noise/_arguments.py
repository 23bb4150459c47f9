"""Integers of any kind as Python integers; the other checks are in C++, where every caller meets them."""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def as_integer(value: Any, name: str) -> int:
    """Returns `value` as an int, by `operator.index`; a symbolic integer of a trace stays symbolic."""
    if type(value) is int or isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    if isinstance(value, Tensor) and value.dtype == torch.uint64 and value.numel() == 1:
        value = value.item()  # operator.index of a tensor goes by int64
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None


def show(integer: int) -> str:
    """Returns a number to name in a sentence: Python does not print very long ones."""
    return str(integer) if integer.bit_length() < 1000 else f"one of {integer.bit_length()} bits"


def as_int64(value: Any, name: str) -> int:
    """Returns `value` as an int that fits 64 signed bits."""
    integer = as_integer(value, name)
    if not INT64_MIN <= integer <= INT64_MAX:
        limit = "less than 2**63" if integer > 0 else "at least -2**63"
        raise ValueError(f"{name} must be {limit}, got {show(integer)}")
    return integer


def as_seed(value: Any, name: str = "seed") -> int:
    """Returns a seed reduced modulo 2**64, as the two's complement that the operators take."""
    seed = as_integer(value, name)
    folded = (seed + 2**63) % 2**64 - 2**63
    # One condition, and so one compilation for all seeds that need folding and one, without arithmetic, for the others.
    return seed if folded == seed else folded


def as_sizes(value: Any, name: str) -> list[int]:
    """Returns a sequence of sizes as a list of ints."""
    if not isinstance(value, Iterable) or isinstance(value, bytes | bytearray | Mapping | Set):
        raise TypeError(f"{name} must be a sequence of integers, got {value!r}")
    return [as_int64(size, f"a size in {name}") for size in value]


def as_device(value: Any) -> torch.device:
    """Returns a device, or a string that names one, as a device."""
    if not isinstance(value, torch.device | str):
        raise TypeError(f"device must be a torch.device or a string, got {value!r}")
    return torch.device(value)


def as_one_or_many(value: Any, name: str, convert: Callable[[Any, str], int]) -> int | Tensor:
    """Returns one integer as an int, and several as a tensor; a tensor is left as it is."""
    if isinstance(value, int):  # first, as a compiler's symbolic integer is one too and can be asked nothing else
        return convert(value, name)
    if isinstance(value, Tensor):
        return value
    is_array = getattr(value, "ndim", 0) > 0
    if is_array or (isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)):
        return torch.tensor([convert(item, name) for item in value], dtype=torch.int64, device="cpu")
    return convert(value, name)


def as_tensor(value: int | Tensor, like: int | Tensor) -> Tensor:
    """Returns a value for all rows as a tensor beside the tensor `like`, without a copy from the host."""
    if isinstance(value, Tensor):
        return value
    assert isinstance(like, Tensor)
    return torch.full((), value, dtype=torch.int64, device=like.device)


def check_out(out: Any, shape: list[int], device: torch.device, dtype: torch.dtype) -> None:
    """Raises if `out` is not a tensor for this result."""
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {out!r}")
    if list(out.shape) != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    if out.dtype != dtype:
        raise ValueError(f"out must have dtype {dtype}, got {out.dtype}")
    # A tensor on a CPU has no index, whatever the device that it was made on was called.
    other_index = out.device.index is not None and device.index not in (None, out.device.index)
    if out.device.type != device.type or other_index:
        raise ValueError(f"out must be on device {device}, got {out.device}")

"""Integers of any kind as Python integers; the other checks are in C++, where every caller meets them."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def as_integer(value: Any, name: str) -> int:
    """Returns `value` as an int, by `operator.index`; a symbolic integer of a trace stays symbolic."""
    if type(value) is int or isinstance(value, torch.SymInt):
        return value  # type: ignore[return-value]
    try:
        return int(operator.index(value))
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r} of type {type(value).__name__}") from None


def as_int64(value: Any, name: str) -> int:
    """Returns `value` as an int that fits 64 signed bits."""
    integer = as_integer(value, name)
    if not INT64_MIN <= integer <= INT64_MAX:
        raise ValueError(f"{name} must be less than 2**63, got {integer}")
    return integer


def as_seed(value: Any) -> int:
    """Returns a seed reduced modulo 2**64, as the two's complement that the operators take."""
    seed = as_integer(value, "seed")
    if INT64_MIN <= seed <= INT64_MAX:
        return seed
    seed %= 2**64
    return seed if seed <= INT64_MAX else seed - 2**64


def as_sizes(value: Any, name: str) -> list[int]:
    """Returns a sequence of sizes as a list of ints."""
    if not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of integers, got {value!r}")
    return [as_int64(size, f"a size in {name}") for size in value]


def as_start(value: Any) -> int:
    """Returns a first position as an int."""
    return as_int64(value, "start")


def as_one_or_many(value: Any, convert: Callable[[Any], int]) -> int | Tensor:
    """Returns one integer as an int, and several as a tensor; a tensor is left as it is."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "__len__") and not isinstance(value, str | bytes):
        return torch.tensor([convert(item) for item in value], dtype=torch.int64, device="cpu")
    return convert(value)


def as_tensor(value: int | Tensor, like: torch.device) -> Tensor:
    """Returns a value for all rows as a tensor, made on the device without a copy from the host."""
    return value if isinstance(value, Tensor) else torch.full((), value, dtype=torch.int64, device=like)


def check_out(out: Any, shape: list[int], device: torch.device, dtype: torch.dtype) -> None:
    """Raises if `out` is not a tensor for this result."""
    if not isinstance(out, Tensor):
        raise TypeError(f"out must be a tensor, got {out!r}")
    if list(out.shape) != shape:
        raise ValueError(f"out must have shape {tuple(shape)}, got {tuple(out.shape)}")
    if out.dtype != dtype:
        raise ValueError(f"out must have dtype {dtype}, got {out.dtype}")
    if out.device.type != device.type or device.index not in (None, out.device.index):
        raise ValueError(f"out must be on device {device}, got {out.device}")

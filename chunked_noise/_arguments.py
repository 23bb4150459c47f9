"""Integers of any kind as Python integers; the other checks are in C++, where every caller meets them."""

import operator
from typing import Any

import torch

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

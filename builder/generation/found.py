"""What a value that was given is: told in a few words, and whether it is a number or a table of ids."""

from __future__ import annotations

import math
import reprlib
from numbers import Integral, Number, Real

import torch
from torch import Tensor

_IDS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64}


def told(value: object) -> str:
    """A number or a text as it is written, a tensor by its shape and dtype, anything else by its kind."""
    if isinstance(value, Tensor):
        place = ", which holds no values" if value.is_meta else ""
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}{place}"
    if value is None or isinstance(value, Number | str):
        return reprlib.repr(value)
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def whole(value: object) -> bool:
    """Whether it is a whole number; true and false are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def finite(value: object) -> bool:
    """Whether it is a number that a float holds; true and false are none."""
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def ids(value: object) -> bool:
    """Whether it is a tensor (B, T) of whole numbers."""
    return isinstance(value, Tensor) and value.ndim == 2 and value.dtype in _IDS and not value.is_meta


def marks(value: object, shape: tuple[int, ...]) -> bool:
    """Whether it is a tensor of that shape of true and false, or of whole numbers in their place."""
    kinds = {torch.bool, *_IDS}
    return isinstance(value, Tensor) and value.shape == shape and value.dtype in kinds and not value.is_meta

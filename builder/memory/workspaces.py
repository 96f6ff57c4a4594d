"""What oneDNN's LSTM takes on a CPU beside its results, which torch doesn't tell: it is asked, on a small case."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

_ATEN = torch.ops.aten
_FORWARD, _BACKWARD = _ATEN.mkldnn_rnn_layer, _ATEN.mkldnn_rnn_layer_backward
_WIDEST = 256
"""The width of the small case: what is kept of a token grows with the widths, so a share of them tells it."""
_ROWS, _SHORT, _LONG = 4, 8, 24
"""Its rows, and its two lengths: what is kept is a line of the length."""


def kept(func: Any, args: Any, out: Any) -> Any:
    """What an operation gave, as fake tensors: with a workspace as large as the kernel makes it for a backward pass."""
    if func.overloadpacket is not _FORWARD or not torch.is_grad_enabled():
        return out
    length, rows, width = args[0].shape  # it reads the length first
    size = _of_a_token(width, args[2].shape[1]) * rows * (length + 1)  # and what the first token is given
    return *out[:3], out[3].new_empty(int(size))


def taken(func: Any, args: Any) -> int:
    """Bytes that a kernel takes while it runs: the gates of all tokens, weights laid out anew, and their gradients."""
    if func.overloadpacket is not _FORWARD and func.overloadpacket is not _BACKWARD:
        return 0
    x, w, u = args[:3]
    gates = x.shape[:2].numel() * u.shape[0] * u.element_size()
    return gates + w.nbytes + u.nbytes * (1 if func.overloadpacket is _FORWARD else 2)


@cache
def _of_a_token(width: int, hidden: int) -> float:
    """Bytes that are kept of a token of a row, by the widths of what is read and of what is carried."""
    share = min(1.0, _WIDEST / max(width, hidden))
    small = max(1, round(share * width)), max(1, round(share * hidden))
    with _disable_current_modes(), torch.enable_grad():
        short, long = (_workspace(length, *small).untyped_storage().nbytes() for length in (_SHORT, _LONG))
    return (long - short) / (_LONG - _SHORT) / _ROWS / share


def _workspace(length: int, width: int, hidden: int) -> Tensor:
    x, carried = torch.zeros(length, _ROWS, width), torch.zeros(_ROWS, hidden)
    weights = [torch.zeros(4 * hidden, *shape) for shape in ((width,), (hidden,), (), ())]
    settings = (False, [], 2, hidden, 1, True, False, False, True)  # an LSTM of one layer, in one direction
    return _FORWARD(x, *weights, carried, carried, *settings)[3]

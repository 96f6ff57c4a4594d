"""Which code runs a selective scan: the fused kernels of mamba-ssm where they can, else the scans of this project."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from builder.model.selective_scan import selective_scan
from builder.model.ssd import ssd

LIBRARY = "mamba_ssm"
_DEVICES = ("cuda",)
_LARGEST = 256  # numbers in the state of a channel
_SMALLEST = 16  # tokens in a chunk


def why_not(
    device: str, size: int, *, dtype: torch.dtype, chunk: int = 64, initial: bool = False, packed: bool = False
) -> str | None:
    """Why the fused kernels can't compute a scan whose states hold `size` numbers a channel; None when they can.

    `chunk` is that of a scan of heads. For one of channels, `initial` and `packed` say whether it starts from a state,
    and whether documents begin inside a row.
    """
    if device not in _DEVICES:
        return f"they run on {' or '.join(_DEVICES)}, and this is {device}"
    if find_spec(LIBRARY) is None:
        return "mamba-ssm is not installed"
    if dtype == torch.float64:
        return "they compute in float32 at most"
    if size > _LARGEST:
        return f"they hold {_LARGEST} numbers a channel at most, and this state has {size}"
    if chunk < _SMALLEST or chunk & (chunk - 1):
        return f"their chunks are powers of 2 from {_SMALLEST} on, and this one is {chunk}"
    if initial or packed:
        return "their scan starts from nothing and knows no documents"
    return None


def in_words(size: int, chunk: int = 64) -> str:
    """What computes such a scan in training in float32, on a CPU and on a GPU."""
    reason = why_not("cuda", size, dtype=torch.float32, chunk=chunk)
    return f"a scan in torch on a CPU, {'mamba-ssm' if reason is None else f'the same ({reason})'} on a GPU"


def scan_channels(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, initial: Tensor | None, starts: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`selective_scan` by the fastest code that computes it."""
    told = {"initial": initial is not None, "packed": starts is not None}
    if why_not(x.device.type, a.shape[1], dtype=dt.dtype, **told) is not None:
        return selective_scan(x, dt, a, b, c, initial, starts)
    u, step, b, c = (v.to(dt.dtype).transpose(1, 2).contiguous() for v in (x, dt, b, c))  # (B, D, T) and (B, N, T)
    fused = _found("ops.selective_scan_interface", "selective_scan_fn")
    y, last = fused(u, step, a, b, c, return_last_state=True)
    return y.transpose(1, 2), last


def scan_heads(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, initial: Tensor | None, starts: Tensor | None, chunk: int
) -> tuple[Tensor, Tensor]:
    """`ssd` of x dt (B, T, H, P) and the decays dt a, dt (B, T, H) and a (H,), by the fastest code that computes it."""
    if why_not(x.device.type, b.shape[-1], dtype=dt.dtype, chunk=chunk) is not None:
        return ssd(x * dt[..., None], dt * a, b, c, initial, starts, chunk)
    number = None if starts is None else starts.expand(len(x), -1).cumsum(1, dtype=torch.int32)
    x, b, c = (v.to(dt.dtype).contiguous() for v in (x, b, c))
    fused = _found("ops.triton.ssd_combined", "mamba_chunk_scan_combined")
    return fused(x, dt, a, b, c, chunk, initial_states=initial, seq_idx=number, return_final_states=True)


def _found(module: str, name: str) -> Any:
    return getattr(import_module(f"{LIBRARY}.{module}"), name)

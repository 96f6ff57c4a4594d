"""Where autocast must not choose the precision."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor


def own_dtype(x: Tensor) -> AbstractContextManager[Any]:
    """A context in which products of x keep its dtype: autocast would round them. It knows of no meta device."""
    return torch.autocast("cpu" if x.is_meta else x.device.type, enabled=False)

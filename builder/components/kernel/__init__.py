"""The arithmetic of attention proper: every kernel computes softmax(q k^T scale + bias, over what is visible) v."""

from __future__ import annotations

from torch import Tensor

from builder.component import Component
from builder.model.mask import Mask


class Kernel(Component):
    """Never instantiated: a kernel is one function, and all kernels agree to rounding."""

    @staticmethod
    def attend(
        q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        """q (B, T, H, E), k and v (B, S, K, E), bias (B | 1, H, T, S) or None -> (B, T, H, E).

        Query head h reads KV head h // (H / K): heads share in blocks. Rows that see nothing give zeros.
        """
        raise NotImplementedError

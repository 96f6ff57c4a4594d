"""What a position scheme adds to the scores: a function of head and positions, written out only where it must be."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, arange

from .positions import Positions


class Bias:
    """bias[b, h, t, s] = at(h, position of query t, position of key s), for `heads` query heads.

    `at` takes integer tensors that broadcast, the positions int64, and is made of element-wise operations and lookups:
    a kernel may call it for one score at a time and never hold the (B, H, T, S) tensor.
    """

    def __init__(
        self, at: Callable[[Tensor, Tensor, Tensor], Tensor], heads: int, queries: Positions, keys: Positions
    ) -> None:
        self.at, self.heads, self.queries, self.keys = at, heads, queries, keys

    def dense(self) -> Tensor:
        """The bias written out, (B | 1, H, T, S); made once a pass."""
        queries = None if self.queries is self.keys else self.queries  # a memo that held itself would be freed late
        return self.keys.once((self.at, self.heads, queries), self._written)

    def _written(self) -> Tensor:
        head = arange(self.heads, device=self.keys.ids.device)[:, None, None]  # (H, 1, 1)
        return self.at(head, self.queries.ids[:, None, :, None], self.keys.ids[:, None, None, :])  # (B | 1, H, T, S)

"""What a generation has written so far: a column a token, and which rows still go on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

OnToken = Callable[[int, Tensor], object]


class Written:
    """The new columns (B,) of some rows, each of which ends behind the first of the ids `ends`; then `pad` stands."""

    def __init__(self, batch: int, ends: tuple[int, ...], pad: int, on_token: OnToken | None, device: torch.device):
        self.ids: list[Tensor] = []
        self.logprobs: list[Tensor] = []
        self.alive: list[Tensor] = []
        self.going = torch.ones(batch, dtype=torch.bool, device=device)
        """(B,), which rows haven't ended."""
        self._stops = torch.tensor(ends, dtype=torch.int64, device=device) if ends else None
        self._pad, self._on_token = pad, on_token

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, ids: Tensor, logprobs: Tensor) -> Tensor:
        """Takes one more column, ids (B,) int64 and logprobs (B,); returns the ids with pad in rows that had ended."""
        if self._stops is not None:
            ids, logprobs = torch.where(self.going, ids, self._pad), torch.where(self.going, logprobs, 0.0)
        self.ids.append(ids)
        self.logprobs.append(logprobs)
        self.alive.append(self.going)
        if self._on_token is not None:
            with torch.inference_mode(False), torch.no_grad():  # an ordinary tensor, which the callback may change
                self._on_token(len(self) - 1, ids.clone())
        if self._stops is not None:
            self.going = self.going & ~(ids[:, None] == self._stops).any(-1)
        return ids

    @property
    def ended(self) -> bool:
        """Whether no row goes on: where rows may end, this waits for the device."""
        return self._stops is not None and not bool(self.going.any())

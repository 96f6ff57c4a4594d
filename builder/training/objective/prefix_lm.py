"""Predict what follows a prefix that is seen in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.registry import register
from builder.training.objective import Objective, Smoothed, Task, both, draws_of, shifted


@register("objective", "prefix_lm")
class PrefixLM(Objective):
    """loss = -sum_{t > P} log p(x_t | x_1 .. x_{t-1}) / number of targets, x_1 .. x_P the prefix (Raffel et al. 2020).

    The prefix is the prompt where the data says which tokens are the answer; else its share of a document is drawn
    from U(0, 1), anew for each row.
    """

    prefix = True
    attention_mask = "the prefix in both directions, then each position itself and what stands before it"
    loss_mask = "every real token behind the prefix is a target; the prefix itself and padding never"

    class Config(Smoothed):
        """Label smoothing."""

        name: str = "prefix_lm"

    def collate(self, batch: dict[str, Tensor], draws: Sequence[int], tokenizer: Tokenizer) -> dict[str, Tensor]:
        drawn = self._drawn(batch, draws)
        if "counted" not in batch:
            return batch | {"prefix": drawn}
        before = ~batch["counted"].long().cumsum(1).bool()  # (B, T + 1), ahead of the first answer
        told = before[:, :1] & batch["counted"].any(1, keepdim=True)  # (B, 1), where the data says what is the prompt
        return batch | {"prefix": torch.where(told, before, drawn)}

    def _drawn(self, batch: dict[str, Tensor], draws: Sequence[int]) -> Tensor:
        """A prefix (B, T + 1) of each document, its share drawn."""
        tokens, real, segments = batch["tokens"], batch.get("attention_mask"), batch.get("segments")
        segments = torch.ones_like(tokens) if segments is None else segments  # (B, T + 1)
        real = torch.ones_like(tokens, dtype=torch.bool) if real is None else real
        count = int(segments.max()) + 1
        shares = torch.stack([torch.rand(count, generator=draw) for draw in draws_of(draws)])  # (B, documents)
        member = (segments[..., None] == torch.arange(count)) & real[..., None]  # (B, T + 1, documents)
        place = (member.long().cumsum(1) - 1).gather(2, segments[..., None])[..., 0]  # (B, T + 1), in its document
        # at least one token before, and at least one target behind
        cuts = (shares * (member.sum(1) - 1)).ceil().long().clamp_min(1)  # (B, documents)
        return (place < cuts.gather(1, segments)) & real

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        batch = super().blank(rows, length, device)
        return batch | {"prefix": torch.empty_like(batch["tokens"], dtype=torch.bool)}

    def task(self, batch: dict[str, Tensor]) -> Task:
        task, prefix = shifted(batch), batch["prefix"]
        return replace(task, prefix=prefix[:, :-1], loss_mask=both(task.loss_mask, ~prefix[:, 1:]))

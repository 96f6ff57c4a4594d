"""Predict tokens that were hidden from what stands on both sides of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from builder.component import refuse
from builder.data.tokenizer import Tokenizer
from builder.registry import register
from builder.training.objective import Objective, Smoothed, Task, draws_of

Share = Annotated[float, Field(ge=0, le=1)]


@register("objective", "masked")
class Masked(Objective):
    """loss = -sum_{t in M} log p(x_t | corrupted x) / |M|, M a share of the real tokens (Devlin et al. 2019).

    Of the chosen tokens most become `mask`, some a random token, and the rest stay, so that the model must know each of
    them. Special tokens are never chosen. A row with any token to choose has at least one target.
    """

    ahead = 0
    kinds = ("encoder",)
    attention_mask = "every position sees every real token"
    loss_mask = "the chosen tokens alone are targets; what stays visible never"

    class Config(Smoothed):
        """What is hidden, and how.

        share       of the tokens that are chosen
        masked      of those, the share that becomes `mask`
        random      and the share that becomes a token drawn from all; the rest stays
        span        tokens that are chosen together, next to each other (Joshi et al. 2020, with spans of one length)
        """

        name: str = "masked"
        share: Annotated[float, Field(gt=0, lt=1)] = 0.15
        masked: Share = 0.8
        random: Share = 0.1
        span: PositiveInt = 1

        @model_validator(mode="after")
        def _shares_are_of_one_whole(self) -> Self:
            if self.masked + self.random == 0:
                rule = "random=0 too, so that no target is hidden: all that is asked for can be read off"
                refuse("masked", self.masked, rule, "masked=0.8")
            if self.masked + self.random > 1 + 1e-9:
                rule = f"masked={self.masked} and random are shares of the same tokens: together at most 1"
                refuse("random", self.random, rule, f"random={max(0.0, 1 - self.masked):g}")
            return self

    config: Config

    @classmethod
    def specials(cls, config: Masked.Config) -> tuple[str, ...]:
        return ("mask",)

    @classmethod
    def shows(cls, config: Masked.Config) -> float:
        return 1 - config.masked - config.random

    def collate(self, batch: dict[str, Tensor], draws: Sequence[int], tokenizer: Tokenizer) -> dict[str, Tensor]:
        tokens, real = batch["tokens"], batch.get("attention_mask")
        special = torch.tensor(sorted(tokenizer.specials.values()))
        may = ~torch.isin(tokens, special)  # (B, T)
        for told in (real, batch.get("counted")):
            may = may if told is None else may & told
        noise = [torch.rand(3, tokens.shape[1], generator=draw) for draw in draws_of(draws)]
        order, fate, which = torch.stack(noise).unbind(1)  # (B, T) each
        chosen = self._chosen(order, may)
        every = torch.arange(len(tokenizer))
        plain = every[~torch.isin(every, special)]
        drawn = plain[(which * len(plain)).long().clamp_max(len(plain) - 1)]  # (B, T)
        seen = torch.where(chosen & (fate < self.config.masked), tokenizer.named["mask"], tokens)
        swapped = chosen & (fate >= self.config.masked) & (fate < self.config.masked + self.config.random)
        return batch | {"tokens": torch.where(swapped, drawn, seen), "targets": tokens, "chosen": chosen}

    def _chosen(self, order: Tensor, may: Tensor) -> Tensor:
        """The tokens with the least numbers in `order` (B, T), in whole spans, a share of those that may be: (B, T)."""
        span, length = self.config.span, order.shape[1]
        starts = order.masked_fill(~may, 2.0)  # behind all others
        rank = starts.argsort(1).argsort(1)  # (B, T)
        wanted = (may.sum(1) * self.config.share / span).round().long().clamp_min(1)  # (B,)
        first = (rank < wanted[:, None]) & may
        if span == 1:
            return first
        ahead = torch.arange(length)[None, :, None] + torch.arange(span)  # (1, T, span)
        chosen = torch.zeros_like(may).long()
        inside = (ahead < length).expand(len(may), -1, -1) & first[..., None]
        places = ahead.clamp_max(length - 1).expand(len(may), -1, -1)
        chosen.scatter_add_(1, places.flatten(1), inside.flatten(1).long())  # (B, T)
        return (chosen > 0) & may

    def blank(self, rows: int, length: int, device: str) -> dict[str, Tensor]:
        batch = super().blank(rows, length, device)
        chosen = torch.empty_like(batch["tokens"], dtype=torch.bool)
        return batch | {"targets": torch.empty_like(batch["tokens"]), "chosen": chosen}

    def task(self, batch: dict[str, Tensor]) -> Task:
        return Task(
            batch["tokens"],
            batch["targets"],
            loss_mask=batch["chosen"],
            attention_mask=batch.get("attention_mask"),
            segments=batch.get("segments"),
        )

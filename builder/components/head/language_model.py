"""Vectors to logits: one number for each row of the vocabulary, for each position."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Site
from builder.components.head import Head, HeadConfig
from builder.finding import Finding, Status
from builder.model.linear import Linear, linear_flops
from builder.model.pieces import Loss, summed
from builder.registry import register


@register("head", "language_model")
class LanguageModelHead(Linear, Head):
    """logits = h W^T + b (chapter 3.7), then times `scale`, then `cap tanh(logits / cap)` (Gemma 2).

    W (V, D) is the embedding's table where they are tied. With a `transform` f, h is first norm(f(h A^T + a)), as in
    masked language models (Devlin et al. 2019).
    """

    gives = "tokens"

    class Config(HeadConfig):
        """What stands beside and behind the product; what stands before it, as for every head (`HeadConfig`).

        bias            one number per vocabulary row (chapter 3.7)
        scale           the factor of the logits, bias included; None: 1
        softcap         cap tanh(logits / cap), after the scale: no logit passes the cap (Gemma 2); None: no cap
        """

        name: str = "language_model"
        bias: bool = False
        scale: PositiveFloat | None = None
        softcap: PositiveFloat | None = None

    def __init__(self, config: LanguageModelHead.Config, site: Site, vocab_size: int):
        super().__init__(site.d_model, vocab_size, bias=config.bias, role="readout")
        self.scale, self.softcap = config.scale, config.softcap
        self.add_transform(config, site)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """hidden (B, T, D) -> (B, T, V)."""
        return self._finished(super().forward(self.transformed(hidden)))

    def summed(self, hidden: Tensor, loss: Loss) -> Tensor:
        """The sum of a loss over all rows of (B T, V), which never exist together: hidden (B, T, D) -> a scalar."""
        rows = self.transformed(hidden).flatten(0, 1)  # (B T, D)
        return summed(rows, self.weight, self.bias, lambda z, rows: loss(self._finished(z), rows))

    def flops(self, tokens: int) -> int:
        return linear_flops(self, tokens)

    def _finished(self, logits: Tensor) -> Tensor:
        if self.scale is not None:
            logits = logits * self.scale
        if self.softcap is not None:
            logits = torch.tanh(logits / self.softcap) * self.softcap
        return logits

    @classmethod
    def plain(cls, config: Any) -> bool:
        return not (config.bias or config.transform) and config.scale is None and config.softcap is None

    @classmethod
    def draw(cls, config: Any) -> str:
        """h what leaves the layers, W and A weights."""
        inner = config.drawn("h")
        product = f"W {inner} + b" if config.bias else f"W {inner}"
        logits = f"({product})" if config.bias and (config.scale or config.softcap) else product
        logits = logits if config.scale is None else f"{config.scale:.4g} {logits}"
        if config.softcap is not None:
            logits = f"{config.softcap:g} tanh({logits} / {config.softcap:g})"
        return f"logits = {logits}"

    @classmethod
    def judge(cls, config: Any, rows: int) -> Iterable[Finding]:
        """What the checklist should say of it over a vocabulary of so many rows."""
        if config.softcap is None:
            return
        surest = 1 / (1 + (rows - 1) * math.exp(-2 * config.softcap))  # one logit at the cap, the others at minus it
        if surest < 0.99:
            rule = f"logits between -{config.softcap:g} and {config.softcap:g} give no token more than {surest:.2g}"
            fix = f"softcap={math.ceil(math.log(99 * rows) / 2)} or more, or null"
            yield Finding(Status.WARN, 4, "softcap", f"{config.softcap:g} for {rows} rows", rule, fix)

"""Attention from a decoder to a source: its queries are of the target, its keys and values of what an encoder made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from pydantic import model_validator
from torch import Tensor

from builder.component import Site, refuse
from builder.components.attention.gqa import GQA
from builder.components.kernel import Scoring, attend
from builder.components.position import Position
from builder.model.context import Context
from builder.model.source import CrossState
from builder.registry import register

_PLAIN: Any = Position(None, None)  # type: ignore[arg-type]
"""The scheme of a layer that has none of its own here: all hooks are no-ops."""


@register("attention", "cross")
class Cross(GQA):
    """Z = softmax(Q(x) K(h)^T / sqrt(E)) V(h) W_O, x (B, T, D) of the target, h (B, S, D) of the source (chapter 3.8).

    Every real token of the source is seen. Keys and values are made once per source and kept in the state.
    """

    part = "cross"

    class Config(GQA.Config):
        """The knobs of a grouped-query attention; `position` None: queries and keys stay as they are."""

        name: str = "cross"

        @model_validator(mode="after")
        def _the_whole_source_is_seen(self) -> Cross.Config:
            if self.window is not None:
                rule = "a window is counted along one sequence, and the source is another: all of it is seen"
                refuse("window", self.window, rule, "window=null")
            return self

    def __init__(self, config: Cross.Config, site: Site):
        super().__init__(config, site)
        self.biased_by_head = config.position is not None and config.position.component.needs_heads
        self.expected = site.train_length

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        read = self.read(x, ctx).flatten(-2)  # (B, T, H E)
        return self.o(read if self.gate is None else read * self.gate(x).sigmoid())  # (B, T, D)

    def read(self, x: Tensor, ctx: Context) -> Tensor:
        """What each head reads of the source: x (B, T, D) -> (B, T, H, E)."""
        source = ctx.source
        if source is None:
            raise ValueError("source: a cross-attention was given none to read")
        asking = replace(ctx, position=source.position or _PLAIN)
        q = self._placed(self.q(x).unflatten(-1, (self.heads, self.width)), self.q_norm, asking)  # (B, T, H, E)
        k, v = self._kept(asking)
        self._record(ctx, q, k)
        if not len(q):  # the shape ledger's batch of no rows
            return q.new_zeros(*q.shape[:3], v.shape[-1])
        scoring = Scoring(
            mask=source.mask,
            scale=self.scale,
            softcap=self.softcap,
            bias=asking.position.bias(ctx.positions, source.positions),
            sinks=self.sinks,
            dropout=self.dropout if self.training else 0.0,
        )
        return attend(self.kernels, q, k, v, scoring)  # (B, T, H, E)

    def _kept(self, ctx: Context) -> tuple[Tensor, Tensor]:
        """Keys and values of the source, (B, S, K, E) each, made once."""
        source = ctx.source
        assert source is not None
        if source.state is not None and source.state.kept is not None:
            return source.state.kept
        if source.hidden is None:
            raise ValueError("source: nothing is left of it but what other layers made of it")
        there = replace(ctx, positions=source.positions)
        k = self.k(source.hidden).unflatten(-1, (self.kv_heads, self.width))  # (B, S, K, E)
        k = self._placed(k, self.k_norm, there)
        v = self.v(source.hidden).unflatten(-1, (self.kv_heads, self.width))  # (B, S, K, E)
        if source.state is not None:
            source.state.kept = (k, v)
        return k, v

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> Any:
        held = (self.kv_heads, self.width)
        return CrossState(batch, self.expected, held, held, dtype)

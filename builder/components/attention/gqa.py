"""Grouped-query attention, and with it multi-head (a KV head each) and multi-query (one KV head) attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import torch
from pydantic import Field, PositiveInt, field_validator, model_validator
from torch import Tensor

from builder import registry
from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse
from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.state import KVState
from builder.registry import register


@register("attention", "gqa")
class GQA(Mixer):
    """Z_r = softmax(Q_r K_g(r)^T / sqrt(E)) V_g(r), output = concat(Z_1 .. Z_H) W_O (chapter 3.4; Ainslie et al. 2023).

        n_kv_heads = n_heads      1 < n_kv_heads < n_heads      n_kv_heads = 1
        q0 q1 q2 q3               q0 q1 q2 q3                   q0 q1 q2 q3
         |  |  |  |                 \\/    \\/                      \\_\\_/_/
        k0 k1 k2 k3                k0    k1                         k0

    2 d H E + 2 d K E weights; the state holds 2 K E numbers a token.
    """

    class Config(BaseConfig):
        """The knobs of an attention.

        n_kv_heads  None: one for each query head (multi-head attention)
        d_head      None: d_model / n_heads
        bias        gives the four projections one each
        dropout     of the attention weights, in training
        position    None: the model's
        kernel      what computes it: sdpa, or eager as the reference
        """

        name: str = "gqa"
        n_heads: PositiveInt
        n_kv_heads: PositiveInt | None = None
        d_head: PositiveInt | None = None
        bias: bool = False
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
        position: Annotated[BaseConfig, Room("position")] | None = None
        kernel: str = "sdpa"

        @property
        def kv_heads(self) -> int:
            return self.n_kv_heads or self.n_heads

        def head_width(self, d_model: int) -> int:
            return self.d_head or d_model // self.n_heads

        @model_validator(mode="after")
        def _heads_share_evenly(self) -> Self:
            if self.n_heads % self.kv_heads:
                fitting = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
                rule = f"n_kv_heads must divide n_heads={self.n_heads}: one of {', '.join(map(str, fitting))}"
                refuse("n_kv_heads", self.n_kv_heads, rule, f"write n_kv_heads={min(fitting, key=self._distance)}")
            return self

        def _distance(self, heads: int) -> int:
            return abs(heads - self.kv_heads)

        @field_validator("kernel")
        @classmethod
        def _kernel_exists(cls, value: str) -> str:
            try:
                registry.find("kernel", value)
            except registry.UnknownName as error:
                refuse("", value, f"{error}; names: {', '.join(error.valid)}", error.nearest or "")
            return value

        def shrink(self, site: Site) -> Self:
            kv_heads = min(self.kv_heads, 2)
            heads = kv_heads * min(self.n_heads // self.kv_heads, 2)
            position = self.position and self.position.shrink(site)
            small = {"n_heads": heads, "n_kv_heads": kv_heads, "d_head": self.head_width(site.d_model)}
            return self.model_copy(update={**small, "position": position})

    def __init__(self, config: GQA.Config, site: Site):
        super().__init__()
        self.heads, self.kv_heads = config.n_heads, config.kv_heads
        self.width = config.head_width(site.d_model)
        self.scale = self.width**-0.5  # keeps the variance of a score at 1 whatever the width (chapter 3.2.1)
        self.dropout = config.dropout
        self.kernel = registry.find("kernel", config.kernel)
        self.q = Linear(site.d_model, self.heads * self.width, bias=config.bias)
        self.k = Linear(site.d_model, self.kv_heads * self.width, bias=config.bias)
        self.v = Linear(site.d_model, self.kv_heads * self.width, bias=config.bias)
        self.o = Linear(self.heads * self.width, site.d_model, bias=config.bias, role="residual")

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.o(self.read(x, ctx).flatten(-2))  # (B, T, D)

    def read(self, x: Tensor, ctx: Context) -> Tensor:
        """What each head reads, before the output projection: x (B, T, D) -> (B, T, H, E)."""
        q = self.q(x).unflatten(-1, (self.heads, self.width))  # (B, T, H, E)
        k = self.k(x).unflatten(-1, (self.kv_heads, self.width))  # (B, T, K, E)
        v = self.v(x).unflatten(-1, (self.kv_heads, self.width))  # (B, T, K, E)
        q, k = ctx.position.rotate(q, ctx.positions), ctx.position.rotate(k, ctx.positions)
        if ctx.state is not None:
            k, v = ctx.state.append(k, v)  # (B, S, K, E)
        bias = ctx.position.bias(ctx.positions, ctx.key_positions)  # (B, H, T, S) or None
        heads = self.kernel.attend(
            q, k, v, self.sees(ctx.mask), bias, self.scale, self.dropout if self.training else 0.0
        )
        self._record(ctx, q, k)
        return heads

    def flops(self, tokens: int) -> int:
        return super().flops(tokens) + 4 * tokens**2 * self.heads * self.width  # q k^T and a v, hidden scores too

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> KVState:
        return KVState(batch, max_length, self.kv_heads, self.width, device=device, dtype=dtype)

    def _record(self, ctx: Context, q: Tensor, k: Tensor) -> None:
        (batch, queries, heads, width), keys = q.shape, k.shape[1]
        ctx.record("Q", "B H T E", batch, heads, queries, width)
        ctx.record("K, V", "B K S E", batch, self.kv_heads, keys, width)
        ctx.record("scores", "B H T S", batch, heads, queries, keys)
        ctx.record("weighted values", "B H T E", batch, heads, queries, width)
        ctx.record("concat", "B T HE", batch, queries, heads * width)
        ctx.record("attention output", "B T D", batch, queries, self.o.out_features)

    @classmethod
    def check(cls, config: GQA.Config, site: Site) -> Iterable[Finding]:
        width, position = config.head_width(site.d_model), config.position or site.position
        found = f"H_q {config.n_heads}, H_kv {config.kv_heads}, d_h {width}"
        if config.d_head is None and site.d_model % config.n_heads:
            rule = f"n_heads must divide d_model={site.d_model}, or d_head be given"
            wider = _fitting(position, -(-site.d_model // config.n_heads)) or width + 1
            fix = f"model.d_model={wider * config.n_heads}, or a d_head"
            yield Finding(Status.FAIL, 1, "n_heads", str(config.n_heads), rule, fix)
        elif misfit := position.component.misfit(position, width):
            wider = _fitting(position, width)
            fix = "another position scheme" if wider is None else f"d_head={wider}"
            yield Finding(Status.FAIL, 1, "d_head", found, misfit, fix)
        else:
            yield Finding(Status.PASS, 1, "n_heads", found, "query heads share KV heads in equal blocks")


def _fitting(position: BaseConfig, width: int) -> int | None:
    """The next head width from `width` on that a position scheme takes; None when it's far."""
    misfit = position.component.misfit
    return next((wider for wider in range(width, 2 * width + 2) if not misfit(position, wider)), None)

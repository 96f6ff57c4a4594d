"""Grouped-query attention, and with it multi-head (a KV head each) and multi-query (one KV head) attention."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import PositiveInt, field_validator, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse, refuse_all
from builder.components.attention import Attention, AttentionConfig
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.kv_state import KVState
from builder.model.linear import Linear
from builder.registry import register

_WIDEST = 1024
"""How wide a head may be in the small copy that probes run on: it keeps its own width, which its positions may fit."""


@register("attention", "gqa")
class GQA(Attention):
    """Z_r = softmax(Q_r K_g(r)^T / sqrt(E)) V_g(r), output = concat(Z_1 .. Z_H) W_O (chapter 3.4; Ainslie et al. 2023).

        n_kv_heads = n_heads      1 < n_kv_heads < n_heads      n_kv_heads = 1
        q0 q1 q2 q3               q0 q1 q2 q3                   q0 q1 q2 q3
         |  |  |  |                 \\/    \\/                      \\_\\_/_/
        k0 k1 k2 k3                k0    k1                         k0

    2 d H E + 2 d K E weights; the state holds 2 K E numbers a token, with a window for the last `window` tokens only.
    With a gate Z_r sigmoid(x W_r) takes the place of Z_r, in d H E weights more (Qiu et al. 2025; Qwen3-Next).
    """

    class Config(AttentionConfig):
        """The knobs of an attention, beside those that every attention has (`AttentionConfig`).

        n_kv_heads      None: one for each query head (multi-head attention)
        d_head          None: d_model / n_heads
        bias            which projections have one: true for all, or a list of q, k, v and o
        gate            whether what each head reads is gated, number by number; with a bias where q has one
        qk_norm         normalises queries and keys (Henry et al. 2020); None: they stay as they are
        qk_norm_over    each head by itself, or the whole projection (OLMo 2)
        qk_norm_at      before or after the position scheme turns them
        """

        name: str = "gqa"
        n_kv_heads: PositiveInt | None = None
        d_head: PositiveInt | None = None
        bias: bool | tuple[str, ...] = False
        gate: bool = False
        qk_norm: Annotated[BaseConfig, Room("norm")] | None = None
        qk_norm_over: Literal["head", "projection"] = "head"
        qk_norm_at: Literal["before", "after"] = "before"

        @property
        def kv_heads(self) -> int:
            return self.n_kv_heads or self.n_heads

        @property
        def biased(self) -> frozenset[str]:
            """Which of the projections q, k, v and o have a bias."""
            every = "qkvo" if self.bias is True else ""
            return frozenset(every if isinstance(self.bias, bool) else self.bias)

        def head_width(self, d_model: int) -> int:
            return self.d_head or d_model // self.n_heads

        @field_validator("bias", mode="before")
        @classmethod
        def _bias_names_projections(cls, value: Any) -> Any:
            named = isinstance(value, list | tuple) and all(part in ("q", "k", "v", "o") for part in value)
            if not (named or isinstance(value, bool)):
                refuse("", value, "true, false, or a list of q, k, v and o", "e.g. bias=[q,k,v]")
            return value if isinstance(value, bool) else tuple(value)

        @model_validator(mode="after")
        def _heads_share_evenly(self) -> Self:
            if self.n_heads % self.kv_heads:
                fitting = [n for n in range(1, self.n_heads + 1) if self.n_heads % n == 0]
                rule = f"n_kv_heads must divide n_heads={self.n_heads}: one of {', '.join(map(str, fitting))}"
                refuse("n_kv_heads", self.n_kv_heads, rule, f"n_kv_heads={min(fitting, key=self._distance)}")
            return self

        def grows(self) -> Iterable[str]:
            return (
                ("n_heads",) if self.n_kv_heads == 1 else ("n_heads", "n_kv_heads")
            )  # multi-query attention stays that

        def _distance(self, heads: int) -> int:
            return abs(heads - self.kv_heads)

        @model_validator(mode="after")
        def _a_norm_is_there_to_be_placed(self) -> Self:
            fields = type(self).model_fields
            placed = ["qk_norm_over", "qk_norm_at"] if self.qk_norm is None else []
            idle = [key for key in placed if getattr(self, key) != fields[key].default]
            rule = "nothing reads it while qk_norm is null"
            refuse_all((key, getattr(self, key), rule, "qk_norm={name: rmsnorm}") for key in idle)
            return self

        def shrink(self, site: Site) -> Self:
            kv_heads = min(self.kv_heads, 2)
            heads = kv_heads * min(self.n_heads // self.kv_heads, 2)
            norm = self.qk_norm and self.qk_norm.shrink(site)
            small = {"n_heads": heads, "n_kv_heads": kv_heads, "d_head": min(self.head_width(site.d_model), _WIDEST)}
            return super().shrink(site).model_copy(update={**small, "qk_norm": norm})

    def __init__(self, config: GQA.Config, site: Site):
        width = config.head_width(site.d_model)
        super().__init__(config, width)
        self.width = width
        self.kv_heads, biased = config.kv_heads, config.biased
        self.q = Linear(site.d_model, self.heads * self.width, bias="q" in biased)
        role = "readout" if config.n_kv_heads == 1 else "matrix"  # one head, however wide the model
        self.k = Linear(site.d_model, self.kv_heads * self.width, bias="k" in biased, role=role)
        self.v = Linear(site.d_model, self.kv_heads * self.width, bias="v" in biased, role=role)
        self.o = Linear(self.heads * self.width, site.d_model, bias="o" in biased, role="residual")
        self.gate = Linear(site.d_model, self.heads * self.width, bias="q" in biased) if config.gate else None
        self.biased_by_head: bool = (config.position or site.position).component.needs_heads
        self.norm_over, self.norm_at = config.qk_norm_over, config.qk_norm_at
        whole, norm = self.norm_over == "projection", config.qk_norm
        self.q_norm = norm and norm.component(norm, self.width * (self.heads if whole else 1))
        self.k_norm = norm and norm.component(norm, self.width * (self.kv_heads if whole else 1))

    def divide(self, ranks: int) -> dict[str, str]:
        known = {"q", "k", "v", "o", "gate"} | ({"q_norm", "k_norm"} if self.norm_over == "head" else set())
        held = {name.partition(".")[0] for name, _ in self.named_parameters()}  # an heir may have others, by head
        if self.biased_by_head or held - known or self.heads % ranks or self.kv_heads % ranks:
            return {}
        self.heads, self.kv_heads = self.heads // ranks, self.kv_heads // ranks
        return dict.fromkeys(sorted(held & {"q", "k", "v", "gate"}), "columns") | {"o": "rows"}

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        read = self.read(x, ctx).flatten(-2)  # (B, T, H E)
        return self.o(read if self.gate is None else read * self.gate(x).sigmoid())  # (B, T, D)

    def read(self, x: Tensor, ctx: Context) -> Tensor:
        """What each head reads, before the output projection: x (B, T, D) -> (B, T, H, E)."""
        return self.attend(*self.project(x, ctx), ctx)

    def project(self, x: Tensor, ctx: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, T, H, E), keys and values (B, T, K, E), normalised and turned by their positions."""
        batch, tokens = x.shape[:2]
        q = self._placed(self.q(x).view(batch, tokens, self.heads, self.width), self.q_norm, ctx)  # (B, T, H, E)
        k = self._placed(self.k(x).view(batch, tokens, self.kv_heads, self.width), self.k_norm, ctx)  # (B, T, K, E)
        return q, k, self.v(x).view(batch, tokens, self.kv_heads, self.width)  # (B, T, K, E)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, ctx: Context) -> Tensor:
        """What queries (B, T, H, E) read of these keys and values and of those in the state: (B, T, H, E)."""
        span = None
        if ctx.state is not None:
            k, v, span = ctx.state.append(k, v)  # (B, S, K, E)
        self._record(ctx, q, k)
        return self.look(q, k, v, ctx, span)

    def _placed(self, x: Tensor, norm: nn.Module | None, ctx: Context) -> Tensor:
        """Queries or keys (B, T, H, E), normalised and turned by their positions, in the order that was asked for."""
        x = self._normed(x, norm) if self.norm_at == "before" else x
        x = ctx.position.rotate(x, ctx.positions)
        return self._normed(x, norm) if self.norm_at == "after" else x

    def _normed(self, x: Tensor, norm: nn.Module | None) -> Tensor:
        if norm is None:
            return x
        return norm(x) if self.norm_over == "head" else norm(x.flatten(-2)).view_as(x)  # (B, T, H, E)

    def flops(self, tokens: int) -> int:
        return super().flops(tokens) + 4 * tokens**2 * self.heads * self.width  # q k^T and a v, hidden scores too

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> KVState:
        held = (self.kv_heads, self.width)
        return KVState(batch, max_length, held, held, window=self.window, device=device, dtype=dtype)

    def _record(self, ctx: Context, q: Tensor, k: Tensor) -> None:
        (batch, queries, heads, width), keys = q.shape, k.shape[1]
        ctx.record("Q", "B H T E", batch, heads, queries, width)
        ctx.record("K, V", "B K S E", batch, self.kv_heads, keys, width)
        ctx.record("scores", "B H T S", batch, heads, queries, keys)
        ctx.record("weighted values", "B H T E", batch, heads, queries, width)
        ctx.record("concat", "B T HE", batch, queries, heads * width)
        ctx.record("attention output", "B T D", batch, queries, self.o.out_features)

    @classmethod
    def narrowest(cls, config: GQA.Config, site: Site) -> int:
        return config.head_width(site.d_model)

    @classmethod
    def score_width(cls, config: GQA.Config, site: Site) -> int:
        return config.head_width(site.d_model)

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
        if config.qk_norm is not None:
            found = f"{config.qk_norm.name} over each {config.qk_norm_over}, {config.qk_norm_at} the position"
            yield Finding(Status.PASS, 4, "qk_norm", found, "queries and keys are normalised before they meet")
        yield from super().check(config, site)


def _fitting(position: BaseConfig, width: int) -> int | None:
    """The next head width from `width` on that a position scheme takes; None when it's far."""
    misfit = position.component.misfit
    return next((wider for wider in range(width, 2 * width + 2) if not misfit(position, wider)), None)

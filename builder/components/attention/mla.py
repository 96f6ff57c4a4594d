"""Multi-head latent attention: keys and values are read out of one narrow vector, and only that vector is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import torch
from pydantic import PositiveInt
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Room, Site
from builder.components.attention import Attention, AttentionConfig
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.kv_state import KVState
from builder.model.linear import Linear
from builder.model.span import Span
from builder.registry import register


@register("attention", "mla")
class MLA(Attention):
    """c_s = norm(x_s W_kva),  k_s = [c_s W_uk ; R(s) x_s W_kr],  v_s = c_s W_uv (DeepSeek-AI 2024, "DeepSeek-V2").

        x --W_kva--> c (kv_rank) --W_kvb--> k' (H, d_head) and v (H, d_value)     c and k'' are all that is kept:
          \\-------> k'' (d_rope), turned, one for all heads                       kv_rank + d_rope numbers a token
        x --W_qa--> norm --W_qb--> q' (H, d_head) and q'' (H, d_rope), turned

    The position is in the d_rope part alone, so k' and v need not exist: q' W_uk^T meets c itself, and the heads'
    weighted c passes W_uv once. That order costs more per query and nothing per key: decode takes it.
    """

    class Config(AttentionConfig):
        """The knobs of latent attention, beside those that every attention has (`AttentionConfig`).

        q_rank      width of the queries' own latent; None: queries come straight from x
        kv_rank     width of the latent that keys and values share
        d_head      width of a head's part without position
        d_rope      width of its part with position
        d_value     width of a value; None: d_head
        norm        of both latents; None: the model's
        """

        name: str = "mla"
        q_rank: PositiveInt | None = None
        kv_rank: PositiveInt
        d_head: PositiveInt
        d_rope: PositiveInt
        d_value: PositiveInt | None = None
        norm: Annotated[BaseConfig, Room("norm")] | None = None

        @property
        def value_width(self) -> int:
            return self.d_value or self.d_head

        def grows(self) -> Iterable[str]:
            return ("n_heads", "q_rank", "kv_rank")

        def shrink(self, site: Site) -> Self:
            ranks = {"q_rank": self.q_rank and 12, "kv_rank": 8, "norm": self.norm and self.norm.shrink(site)}
            return super().shrink(site).model_copy(update={"n_heads": min(self.n_heads, 2), **ranks})

    def __init__(self, config: MLA.Config, site: Site):
        super().__init__(config, config.d_head + config.d_rope)
        self.plain, self.turned, self.value = config.d_head, config.d_rope, config.value_width
        self.rank, queries = config.kv_rank, self.heads * (self.plain + self.turned)
        norm = config.norm or site.norm
        self.q_a = Linear(site.d_model, config.q_rank) if config.q_rank else None
        self.q_norm = norm.component(norm, config.q_rank) if config.q_rank else None
        self.q_b = Linear(config.q_rank or site.d_model, queries)
        self.kv_a = Linear(site.d_model, self.rank + self.turned)
        self.kv_norm = norm.component(norm, self.rank)
        self.kv_b = Linear(self.rank, self.heads * (self.plain + self.value))
        self.o = Linear(self.heads * self.value, site.d_model, role="residual")

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.o(self.read(x, ctx).flatten(-2))  # (B, T, D)

    def read(self, x: Tensor, ctx: Context) -> Tensor:
        """What each head reads, before the output projection: x (B, T, D) -> (B, T, H, Ev)."""
        narrow = x if self.q_a is None or self.q_norm is None else self.q_norm(self.q_a(x))
        q = self.q_b(narrow).unflatten(-1, (self.heads, self.plain + self.turned))  # (B, T, H, E)
        q, q_turned = q.split((self.plain, self.turned), dim=-1)
        q_turned = ctx.position.rotate(q_turned, ctx.positions)  # (B, T, H, R)
        c, k_turned = self.kv_a(x).split((self.rank, self.turned), dim=-1)
        c = self.kv_norm(c)  # (B, T, rank)
        k_turned = ctx.position.rotate(k_turned[:, :, None], ctx.positions)  # (B, T, 1, R)
        span = None
        kept = torch.cat((c[:, :, None], k_turned), dim=-1)  # (B, T, 1, rank + R)
        if ctx.state is not None:  # one thing is kept, and no value beside it
            kept, _, span = ctx.state.append(kept, kept[..., :0])  # (B, S, 1, rank + R)
        self._record(ctx, x.shape[1], kept)
        few = x.shape[1] * (2 * self.rank - self.plain - self.value) < self.rank * (self.plain + self.value)
        way = self._within if ctx.state is not None and few else self._widened
        return way(q, q_turned, kept, ctx, span)

    def _widened(self, q: Tensor, q_turned: Tensor, kept: Tensor, ctx: Context, span: Span | None) -> Tensor:
        """Keys and values made from the latent, for many queries at once."""
        c, k_turned = kept.split((self.rank, self.turned), dim=-1)
        wide = self.kv_b(c[:, :, 0]).unflatten(-1, (self.heads, self.plain + self.value))  # (B, S, H, E' + Ev)
        k, v = wide.split((self.plain, self.value), dim=-1)
        k = torch.cat((k, k_turned.expand(-1, -1, self.heads, -1)), dim=-1)  # (B, S, H, E)
        return self.look(torch.cat((q, q_turned), dim=-1), k, v, ctx, span)

    def _within(self, q: Tensor, q_turned: Tensor, kept: Tensor, ctx: Context, span: Span | None) -> Tensor:
        """Queries taken into the latent, which is then the one key and value of all heads."""
        up, down = self.kv_b.weight.view(self.heads, -1, self.rank).split((self.plain, self.value), dim=1)
        q = torch.cat((torch.einsum("bthe,her->bthr", q, up), q_turned), dim=-1)  # (B, T, H, rank + R)
        read = self.look(q, kept, kept[..., : self.rank], ctx, span)  # (B, T, H, rank)
        return torch.einsum("bthr,hvr->bthv", read, down)  # (B, T, H, Ev)

    def flops(self, tokens: int) -> int:
        scores = tokens**2 * self.heads * (self.plain + self.turned + self.value)
        return super().flops(tokens) + 2 * scores  # q k^T and a v, hidden scores too

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> KVState:
        held = (1, self.rank + self.turned), (1, 0)
        return KVState(batch, max_length, *held, window=self.window, device=device, dtype=dtype)

    def _record(self, ctx: Context, queries: int, kept: Tensor) -> None:
        batch, keys = kept.shape[:2]
        ctx.record("Q", "B H T E", batch, self.heads, queries, self.plain + self.turned)
        ctx.record("latent", "B S C", batch, keys, self.rank)
        ctx.record("turned key", "B 1 S R", batch, 1, keys, self.turned)
        ctx.record("scores", "B H T S", batch, self.heads, queries, keys)
        ctx.record("weighted values", "B H T Ev", batch, self.heads, queries, self.value)
        ctx.record("attention output", "B T D", batch, queries, self.o.out_features)

    @classmethod
    def narrowest(cls, config: MLA.Config, site: Site) -> int:
        return min(config.d_head + config.d_rope, config.value_width)

    @classmethod
    def score_width(cls, config: MLA.Config, site: Site) -> int:
        return config.d_head + config.d_rope

    @classmethod
    def check(cls, config: MLA.Config, site: Site) -> Iterable[Finding]:
        widths = f"d_h {config.d_head} + {config.d_rope} with position, d_v {config.value_width}"
        found = f"H {config.n_heads}, {widths}, rank {config.kv_rank}"
        position = config.position or site.position
        kept, usual = config.kv_rank + config.d_rope, 2 * config.n_heads * (config.d_head + config.d_rope)
        if misfit := position.component.misfit(position, config.d_rope):
            widths = range(config.d_rope, 2 * config.d_rope + 9)
            wider = next((width for width in widths if not position.component.misfit(position, width)), None)
            fix = "another position scheme" if wider is None else f"d_rope={wider}"
            yield Finding(Status.FAIL, 1, "d_rope", found, misfit, fix)
        else:
            rule = f"{kept} numbers are kept a token, where multi-head attention keeps {usual}"
            status = Status.PASS if kept < usual else Status.WARN
            yield Finding(status, 1, "kv_rank", found, rule, "" if kept < usual else "a smaller kv_rank, or gqa")
        yield from super().check(config, site)

"""Attention without a softmax: a sum over keys becomes a state, which may decay head by head."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import PositiveInt, model_validator
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse_all
from builder.components.position import Position
from builder.components.ssm import SSM
from builder.finding import Finding, Status
from builder.model.activations import SILU, gated
from builder.model.compact import Compact, compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.row_state import RowState
from builder.registry import register

from ._weighted_sum import multiplied, weighted_sum

_EPS = 1e-6  # added to what is divided by, as the authors of linear attention do


def _positive(x: Tensor) -> Tensor:
    return F.elu(x) + 1


def _kept(x: Tensor) -> Tensor:
    return x


def _no_decay(heads: int, like: Tensor) -> Tensor:
    return like.new_zeros(1)


def _retention(heads: int, like: Tensor) -> Tensor:
    """log(1 - 2^(-5 - h)), (H,): in float32 or wider, since in bfloat16 the slow heads would not decay at all."""
    return (-torch.exp2(-5.0 - torch.arange(heads, device=like.device, dtype=like.dtype))).log1p()


_FEATURES = {"elu": _positive, "none": _kept}
_DECAYS = {"none": _no_decay, "retention": _retention}


@register("ssm", "linear_attention")
class LinearAttention(SSM):
    """S_t = gamma S_{t-1} + f(k_t) v_t^T,  z_t = gamma z_{t-1} + f(k_t),  y_t = f(q_t) S_t / f(q_t) z_t for each head,
    f = elu + 1, gamma = 1 (Katharopoulos et al. 2020, "Transformers are RNNs"). As a retention (Sun et al. 2023,
    "Retentive Network"; feature none, decay retention, divide norm, gate true):

        S_t = gamma_h S_{t-1} + k_t v_t^T,  y_t = norm(q_t S_t / sqrt(E)) silu(x W_gate),  gamma_h = 1 - 2^(-5 - h)

    Queries and keys are turned by the position scheme where they meet, and not in z (Su et al. 2021, eq. 19). The state
    holds H E (E + 1) numbers a row, and without z H E^2, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of linear attention.

        d_head      width of a head, E; None: d_model / n_heads
        feature     f: elu + 1, which is never negative; none: queries and keys as they are
        decay       gamma: none, 1; retention, of head h of H: 1 - 2^(-5 - h)
        divide      what is read by: the sum of its weights, or a norm of each head
        norm        that norm; None: the model's
        gate        whether what is read is multiplied by silu(x W_gate)
        position    None: the model's
        """

        name: str = "linear_attention"
        n_heads: PositiveInt
        d_head: PositiveInt | None = None
        feature: Literal["elu", "none"] = "elu"
        decay: Literal["none", "retention"] = "none"
        divide: Literal["sum", "norm"] = "sum"
        norm: Annotated[BaseConfig, Room("norm")] | None = None
        gate: bool = False
        position: Annotated[BaseConfig, Room("position")] | None = None

        def head_width(self, d_model: int) -> int:
            """E, in a model of that width."""
            return self.d_head or d_model // self.n_heads

        @model_validator(mode="after")
        def _weights_can_be_divided_by(self) -> Self:
            faults = []
            if self.divide == "sum" and self.feature == "none":
                rule = "without a feature map the weights of a query may sum to 0, and be divided by that"
                faults.append(("divide", self.divide, rule, "divide=norm, or feature=elu"))
            if self.divide == "sum" and self.norm is not None:
                faults.append(("norm", self.norm.name, "nothing reads it while divide is sum", "divide=norm"))
            refuse_all(faults)
            return self

        def grows(self) -> Iterable[str]:
            return ("n_heads",)

        def shrink(self, site: Site) -> Self:
            small: dict[str, Any] = {
                key: (slot := getattr(self, key)) and slot.shrink(site) for key in ("norm", "position")
            }
            return self.model_copy(update=small | {"n_heads": min(self.n_heads, 2), "d_head": self.d_head and 16})

    def __init__(self, config: LinearAttention.Config, site: Site):
        super().__init__()
        self.heads, self.width = config.n_heads, config.head_width(site.d_model)
        self.feature, self.decay, self.summed = _FEATURES[config.feature], _DECAYS[config.decay], config.divide == "sum"
        self.turned = (config.position or site.position).component.rotate is not Position.rotate
        inner, norm = self.heads * self.width, config.norm or site.norm
        self.columns = (self.width,) if not self.summed else (self.width, 1) if self.turned else (self.width + 1,)
        self.q = Linear(site.d_model, inner)
        self.k = Linear(site.d_model, inner)
        self.v = Linear(site.d_model, inner)
        self.gate = Linear(site.d_model, inner) if config.gate else None
        self.norm = None if self.summed else norm.component(norm, self.width)
        self.o = Linear(inner, site.d_model, role="residual")

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        row = compact(ctx, x.shape[1])
        self.record(ctx, x)
        wide = torch.promote_types(x.dtype, torch.float32)
        q, k, v = (part(x).to(wide).unflatten(-1, (self.heads, self.width)) for part in (self.q, self.k, self.v))
        q, k = self.feature(q), self.feature(k)  # (B, T, H, E)
        rotated = (ctx.position.rotate(part, ctx.positions) for part in (q, k) if self.turned)
        turned = tuple(row.gather(part) for part in rotated)
        y = self._read([row.gather(part) for part in (q, k, v)], turned, row, ctx.state)
        y = row.scatter(y).to(x.dtype)
        y = (y if self.norm is None else self.norm(y)).flatten(-2)  # (B, T, H E)
        return self.o(y if self.gate is None else gated(SILU, self.gate(x), y))  # (B, T, D)

    def _read(self, parts: list[Tensor], turned: tuple[Tensor, ...], row: Compact, state: RowState | None) -> Tensor:
        """What each head reads, (B, T, H, E), of queries, keys and values, and of queries and keys as turned."""
        q, k, v = parts
        v = F.pad(v, (0, 1), value=1.0) if self.summed else v  # the last column sums the weights
        log = self.decay(self.heads, q).expand(1, q.shape[1], -1)  # (1, T, H | 1)
        if row.real is not None:  # behind the last real token the state stays
            log, v = log * row.real[..., None], v * row.real[..., None, None]
        held = [None] * len(self.columns) if state is None else state["hidden"].split(self.columns, -1)
        ways = zip((turned or (q, k), (q, k)), v.split(self.columns, -1), held, strict=False)  # the sums aren't turned
        found = [weighted_sum(q, k, values, log, before, row.starts) for (q, k), values, before in ways]
        y, last = (torch.cat(both, dim=-1) for both in zip(*found, strict=True))
        if state is not None:
            state["hidden"] = last
        return y[..., :-1] / (y[..., -1:] + _EPS) if self.summed else y * self.width**-0.5

    def flops(self, tokens: int) -> int:
        products = sum(multiplied(tokens, self.width, values) for values in self.columns)
        return super().flops(tokens) + 2 * self.heads * products

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        wide = torch.promote_types(dtype, torch.float32)
        size = (batch, self.heads, self.width, sum(self.columns))
        return RowState(hidden=torch.zeros(size, device=device, dtype=wide))

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length = x.shape[:2]
        ctx.record("q, k, v", "B H T E", batch, self.heads, length, self.width)
        ctx.record("state", "B H E V", batch, self.heads, self.width, sum(self.columns))
        ctx.record("mixer output", "B T D", *x.shape)

    @staticmethod
    def heads_of(config: LinearAttention.Config) -> None:
        """No scores, so no biases of heads."""
        return None

    @classmethod
    def check(cls, config: LinearAttention.Config, site: Site) -> Iterable[Finding]:
        width, position = config.head_width(site.d_model), config.position or site.position
        found = f"H {config.n_heads}, d_h {width}"
        if config.d_head is None and site.d_model % config.n_heads:
            rule = f"n_heads must divide d_model={site.d_model}, or d_head be given"
            fix = f"model.d_model={-(-site.d_model // config.n_heads) * config.n_heads}, or a d_head"
            yield Finding(Status.FAIL, 1, "n_heads", str(config.n_heads), rule, fix)
        elif misfit := position.component.misfit(position, width):
            wider = next((w for w in range(width, 2 * width + 9) if not position.component.misfit(position, w)), None)
            fix = "another position scheme" if wider is None else f"d_head={wider}"
            yield Finding(Status.FAIL, 1, "d_head", found, misfit, fix)
        else:
            held = config.n_heads * width * (width + (config.divide == "sum"))
            yield Finding(Status.PASS, 1, "n_heads", found, f"{held:,} numbers are kept a row, however long it is")
        if position.component.bias is not Position.bias:
            rule = "it is added to scores, and a linear attention has none: its positions aren't felt here"
            yield Finding(Status.WARN, 3, "position", position.name, rule, "position={name: rope}")
        yield from super().check(config, site)

"""A selective state-space model whose heads decay by one number each, so that it is computed by matrix products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site, refuse_all
from builder.components.ssm import SSM, Convolution, Steps, decays
from builder.finding import Finding, Status
from builder.model.activations import SILU, gated
from builder.model.compact import Compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.row_state import RowState
from builder.model.ssd import ssd_flops
from builder.registry import register

from ._fused import in_words, scan_heads


@register("ssm", "mamba2")
class Mamba2(SSM):
    """h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T,  y_t = h_t C_t + D x_t, for each head (Dao & Gu 2024, "Mamba-2").

        u --input--> x, gate (E each)        u --b, c--> B, C (G N each)        u --dt--> softplus --> dt (H)
        x, B, C --conv--> silu        A = -exp(a_log) (H)        H = E / d_head
        norm(y silu(gate)) --output--> (D)

    B and C are shared by the H / G heads of a group. The input is discretised by dt B, as in `mamba`. The state holds
    E N + (E + 2 G N) (d_conv - 1) numbers a row, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of a layer of heads.

        d_inner           channels, E; None: 2 d_model
        d_head            channels of a head, P
        d_state           numbers in the state of a channel, N
        n_groups          how many B and C there are, G
        d_conv            tokens that the convolution sees
        chunk             tokens that are computed on at once; changes nothing but the speed
        conv_bias         of the convolution
        bias              of the input and output maps
        norm              whether y is normalised, over each group's channels by itself
        norm_before_gate  norm(y) silu(gate) instead
        norm_eps          added to the mean square
        dt_min            the steps lie between these two at first
        dt_max
        dt_limit          the steps lie between these two always; None: anywhere; the second None: no bound above
        factors           of gate, x, B, C and dt as they leave their maps (Falcon-H1); None: 1
        """

        name: str = "mamba2"
        d_inner: PositiveInt | None = None
        d_head: PositiveInt = 64
        d_state: PositiveInt = 128
        n_groups: PositiveInt = 1
        d_conv: PositiveInt = 4
        chunk: PositiveInt = 64
        conv_bias: bool = True
        bias: bool = False
        norm: bool = True
        norm_before_gate: bool = False
        norm_eps: PositiveFloat = 1e-5
        dt_min: PositiveFloat = 1e-3
        dt_max: PositiveFloat = 0.1
        dt_limit: Annotated[tuple[NonNegativeFloat, PositiveFloat | None], Field(strict=False)] | None = None
        factors: Annotated[tuple[PositiveFloat, ...], Field(strict=False, min_length=5, max_length=5)] | None = None

        @model_validator(mode="after")
        def _knobs_fit_together(self) -> Self:
            faults: list[tuple[str, Any, str, str]] = []
            if self.dt_min >= self.dt_max:
                faults.append(("dt_min", self.dt_min, f"less than dt_max={self.dt_max:g}", "dt_min=0.001 dt_max=0.1"))
            if self.dt_limit and self.dt_limit[1] is not None and self.dt_limit[0] >= self.dt_limit[1]:
                faults.append(("dt_limit", self.dt_limit, "the least step, then the greatest", "dt_limit=[0.001,0.1]"))
            if self.norm_before_gate and not self.norm:
                faults.append(("norm_before_gate", True, "there is no norm to be placed", "norm=true"))
            refuse_all(faults)
            return self

        def channels(self, d_model: int) -> int:
            """E, the channels of a layer of that width."""
            return self.d_inner or 2 * d_model

        def heads(self, d_model: int) -> int:
            """H, its heads."""
            return self.channels(d_model) // self.d_head

        def grows(self) -> Iterable[str]:
            return () if self.d_inner is None else ("d_inner",)

        def shrink(self, site: Site) -> Self:
            groups, width = min(self.n_groups, 2), min(self.d_head, 8)
            small = {"d_inner": self.d_inner and 2 * groups * width, "n_groups": groups, "d_head": width}
            lengths = {"d_conv": min(self.d_conv, 4), "chunk": min(self.chunk, 4)}
            return self.model_copy(update=small | lengths | {"d_state": min(self.d_state, 5)})

    roles = {"a_log": "own", "d": "own"}

    def __init__(self, config: Mamba2.Config, site: Site):
        super().__init__()
        self.channels, self.heads, self.width = config.channels(site.d_model), config.heads(site.d_model), config.d_head
        self.groups, self.size, self.chunk = config.n_groups, config.d_state, config.chunk
        self.limit, self.factors, shared = config.dt_limit, config.factors, config.n_groups * config.d_state
        self.input = Linear(site.d_model, 2 * self.channels, bias=config.bias)
        self.b = Linear(site.d_model, shared, bias=config.bias, role="readout")  # so many, however wide the model
        self.c = Linear(site.d_model, shared, bias=config.bias, role="readout")
        self.dt = Steps(site.d_model, self.heads, config.dt_min, config.dt_max, narrow=False)
        self.conv = Convolution(self.channels + 2 * shared, config.d_conv, config.conv_bias)
        self.a_log = nn.Parameter(torch.empty(self.heads))  # (H,)
        self.d = nn.Parameter(torch.empty(self.heads))  # (H,)
        self.norm = (
            GatedNorm(self.channels, self.groups, config.norm_eps, config.norm_before_gate) if config.norm else None
        )
        self.output = Linear(self.channels, site.d_model, bias=config.bias, role="residual")
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """The rates are drawn from U(1, 16), as published, and each head's own input passes by unchanged."""
        rates = torch.empty(self.heads, device=self.a_log.device).uniform_(1, 16, generator=generator)
        self.a_log.copy_(rates.log())
        self.d.fill_(1.0)

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        dt, gate, inputs = self._mapped(x)
        before = self.conv.history(inputs, state)
        shared = self.groups * self.size
        values, b, c = F.silu(self.conv(inputs, row, before)).split((self.channels, shared, shared), dim=-1)
        if self.limit is not None:
            dt = dt.clamp(*self.limit)
        if row.real is not None:
            dt = dt * row.real[..., None]  # behind the last real token the state stays
        values = values.unflatten(-1, (self.heads, self.width)).to(dt.dtype)  # (B, T, H, P)
        b, c = (v.unflatten(-1, (self.groups, self.size)) for v in (b, c))  # (B, T, G, N)
        hidden = None if state is None else state["hidden"]
        y, last = scan_heads(values, dt, decays(self.a_log), b, c, hidden, row.starts, self.chunk)
        if state is not None:
            state["inputs"], state["hidden"] = row.ends(inputs, before), last
        y = torch.addcmul(y, values, self.d[:, None].to(y.dtype)).flatten(2)  # (B, T, E)
        y = gated(SILU, gate.to(y.dtype), y) if self.norm is None else self.norm(y, gate)
        return self.output(y.to(gate.dtype))

    def _mapped(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The steps (B, T, H), the gate (B, T, E), and x, B and C together (B, T, E + 2 G N)."""
        values, gate = self.input(x).chunk(2, dim=-1)  # (B, T, E)
        parts = values, self.b(x), self.c(x)
        if self.factors is None:
            return self.dt(x), gate, torch.cat(parts, dim=-1)
        gating, *others, steps = self.factors
        scaled = [part * factor for part, factor in zip(parts, others, strict=True)]
        return self.dt(x * steps), gate * gating, torch.cat(scaled, dim=-1)  # the steps' bias stays as it is

    def flops(self, tokens: int) -> int:
        products = ssd_flops(tokens, self.heads, self.width, self.groups, self.size, self.chunk)
        return super().flops(tokens) + products

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        channels, wide = self.conv.weight.shape[0], torch.promote_types(dtype, torch.float32)
        return RowState(
            inputs=torch.zeros(batch, self.conv.width - 1, channels, device=device, dtype=dtype),
            hidden=torch.zeros(batch, self.heads, self.width, self.size, device=device, dtype=wide),
        )

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length, width = x.shape
        ctx.record("x, gate", "B T E", batch, length, self.channels)
        ctx.record("dt", "B T H", batch, length, self.heads)
        ctx.record("B, C", "B T G N", batch, length, self.groups, self.size)
        ctx.record("state", "B H P N", batch, self.heads, self.width, self.size)
        ctx.record("mixer output", "B T D", batch, length, width)

    @classmethod
    def computed_by(cls, config: Mamba2.Config, site: Site) -> str:
        return in_words(config.d_state, config.chunk)

    @classmethod
    def check(cls, config: Mamba2.Config, site: Site) -> Iterable[Finding]:
        channels, heads, shared = (
            config.channels(site.d_model),
            config.heads(site.d_model),
            config.n_groups * config.d_state,
        )
        found = f"E {channels}, H {heads}, P {config.d_head}, N {config.d_state}, G {config.n_groups}"
        if channels % config.d_head:
            fix = f"d_head={next(width for width in range(config.d_head, 0, -1) if channels % width == 0)}"
            yield Finding(Status.FAIL, 1, "d_head", found, f"d_head must divide the {channels} channels", fix)
        elif heads % config.n_groups:
            fix = f"n_groups={next(n for n in range(config.n_groups, 0, -1) if heads % n == 0)}"
            yield Finding(Status.FAIL, 1, "n_groups", found, f"n_groups must divide the {heads} heads", fix)
        else:
            held = channels * config.d_state + (channels + 2 * shared) * (config.d_conv - 1)
            rule = f"{held:,} numbers are kept a row, however long it is; discretised by dt B"
            yield Finding(Status.PASS, 1, "d_state", found, rule)
        yield from super().check(config, site)


class GatedNorm(nn.Module):
    """g * n(y silu(gate)), or g * n(y) silu(gate); n divides each of `groups` blocks by its root mean square."""

    roles = {"weight": "scale"}

    def __init__(self, channels: int, groups: int, eps: float, before_gate: bool):
        super().__init__()
        self.groups, self.eps, self.before_gate = groups, eps, before_gate
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, y: Tensor, gate: Tensor) -> Tensor:
        """y (B, T, E) in float32 or wider, gate (B, T, E) -> (B, T, E)."""
        gate = gate.to(y.dtype)
        y = y if self.before_gate else gated(SILU, gate, y)
        parts = y.unflatten(-1, (self.groups, y.shape[-1] // self.groups))  # (B, T, G, E / G)
        y = F.rms_norm(parts, parts.shape[-1:], eps=self.eps).flatten(-2) * self.weight.to(y.dtype)  # (B, T, E)
        return gated(SILU, gate, y) if self.before_gate else y

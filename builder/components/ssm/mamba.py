"""A selective state-space model: what a token says decides how far its channels' states decay and what they take in."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site, refuse
from builder.components.ssm import SSM, Convolution, Steps, decays
from builder.finding import Finding, Status
from builder.model.activations import SILU, gated
from builder.model.compact import Compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.row_state import RowState
from builder.model.selective_scan import scanned
from builder.registry import register

from ._fused import in_words, scan_channels


@register("ssm", "mamba")
class Mamba(SSM):
    """h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t,  y_t = C_t h_t + D x_t (Gu & Dao 2023, "Mamba").

        u --input--> x, gate (E each)        x --conv--> silu --> x
        x --dt_a, dt_b--> softplus --> dt (E)        x --b, c--> B, C (N each)        A = -exp(a_log) (E, N)
        y silu(gate) --output--> (D)

    The input is discretised by dt B, and not by the zero-order hold of chapter 3.10: with A = -1, dt = ln 2 and x = 1
    the state takes in .693 and not .5. The state holds E (N + d_conv - 1) numbers a row, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of a selective layer.

        d_inner     channels, E; None: 2 d_model
        d_state     numbers in the state of a channel, N
        d_conv      tokens that the convolution sees
        dt_rank     width of what the steps are made of; None: d_model / 16
        conv_bias   of the convolution
        bias        of the input and output maps
        norm        of what dt, B and C are made of, each by itself (Jamba); None: none
        dt_min      the steps lie between these two at first
        dt_max
        """

        name: str = "mamba"
        d_inner: PositiveInt | None = None
        d_state: PositiveInt = 16
        d_conv: PositiveInt = 4
        dt_rank: PositiveInt | None = None
        conv_bias: bool = True
        bias: bool = False
        norm: Annotated[BaseConfig, Room("norm")] | None = None
        dt_min: PositiveFloat = 1e-3
        dt_max: PositiveFloat = 0.1
        left_out: ClassVar = ("norm",)
        """Knobs whose null leaves something out, where elsewhere it stands for the model's own."""

        @model_validator(mode="after")
        def _steps_have_a_range(self) -> Self:
            if self.dt_min >= self.dt_max:
                refuse("dt_min", self.dt_min, f"less than dt_max={self.dt_max:g}", "dt_min=0.001 dt_max=0.1")
            return self

        def channels(self, d_model: int) -> int:
            """E, the channels of a layer of that width."""
            return self.d_inner or 2 * d_model

        def rank(self, d_model: int) -> int:
            """R, the width of what the steps are made of."""
            return self.dt_rank or math.ceil(d_model / 16)

        def grows(self) -> Iterable[str]:
            return [key for key in ("d_inner", "dt_rank") if getattr(self, key) is not None]

        def shrink(self, site: Site) -> Self:
            small = {"d_inner": self.d_inner and 48, "dt_rank": self.dt_rank and 3, "d_state": min(self.d_state, 5)}
            norm = self.norm and self.norm.shrink(site)
            return self.model_copy(update=small | {"d_conv": min(self.d_conv, 4), "norm": norm})

    roles = {"a_log": "own", "d": "own"}

    def __init__(self, config: Mamba.Config, site: Site):
        super().__init__()
        self.channels, self.size, rank = config.channels(site.d_model), config.d_state, config.rank(site.d_model)
        self.input = Linear(site.d_model, 2 * self.channels, bias=config.bias)
        self.conv = Convolution(self.channels, config.d_conv, config.conv_bias)
        self.dt_a = Linear(self.channels, rank)
        self.b = Linear(self.channels, self.size, role="readout")  # so many, however wide the model
        self.c = Linear(self.channels, self.size, role="readout")
        self.dt_b = Steps(rank, self.channels, config.dt_min, config.dt_max, narrow=True)
        norm = config.norm
        self.dt_norm = norm and norm.component(norm, rank)
        self.b_norm = norm and norm.component(norm, self.size)
        self.c_norm = norm and norm.component(norm, self.size)
        self.a_log = nn.Parameter(torch.empty(self.channels, self.size))  # (E, N)
        self.d = nn.Parameter(torch.empty(self.channels))  # (E,)
        self.output = Linear(self.channels, site.d_model, bias=config.bias, role="residual")
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Each channel's rates are 1 .. N (S4D-Real; Gu et al. 2022), and its own input passes by unchanged."""
        self.a_log.copy_(torch.arange(1, self.size + 1, device=self.a_log.device).log())
        self.d.fill_(1.0)

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        x, gate = self.input(x).chunk(2, dim=-1)  # (B, T, E)
        before = self.conv.history(x, state)
        inputs, x = x, F.silu(self.conv(x, row, before))
        dt = self.dt_b(_normed(self.dt_a(x), self.dt_norm))  # (B, T, E)
        if row.real is not None:
            dt = dt * row.real[..., None]  # behind the last real token the state stays
        b, c = _normed(self.b(x), self.b_norm), _normed(self.c(x), self.c_norm)  # (B, T, N)
        hidden = None if state is None else state["hidden"]
        y, last = scan_channels(x, dt, decays(self.a_log), b, c, hidden, row.starts)
        if state is not None:
            state["inputs"], state["hidden"] = row.ends(inputs, before), last
        y = torch.addcmul(y, x.to(y.dtype), self.d.to(y.dtype)).to(gate.dtype)
        return self.output(gated(SILU, gate, y))

    def flops(self, tokens: int) -> int:
        read = 2 * scanned(tokens) * self.channels * self.size  # C h
        return super().flops(tokens) + read

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        wide = torch.promote_types(dtype, torch.float32)
        return RowState(
            inputs=torch.zeros(batch, self.conv.width - 1, self.channels, device=device, dtype=dtype),
            hidden=torch.zeros(batch, self.channels, self.size, device=device, dtype=wide),
        )

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length, width = x.shape
        ctx.record("x, gate", "B T E", batch, length, self.channels)
        ctx.record("dt", "B T E", batch, length, self.channels)
        ctx.record("B, C", "B T N", batch, length, self.size)
        ctx.record("state", "B E N", batch, self.channels, self.size)
        ctx.record("mixer output", "B T D", batch, length, width)

    @classmethod
    def computed_by(cls, config: Mamba.Config, site: Site) -> str:
        return in_words(config.d_state)

    @classmethod
    def check(cls, config: Mamba.Config, site: Site) -> Iterable[Finding]:
        channels = config.channels(site.d_model)
        held = channels * (config.d_state + config.d_conv - 1)
        found = f"E {channels}, N {config.d_state}, conv {config.d_conv}, rank {config.rank(site.d_model)}"
        rule = f"{held:,} numbers are kept a row, however long it is; discretised by dt B"
        yield Finding(Status.PASS, 1, "d_state", found, rule)
        yield from super().check(config, site)


def _normed(x: Tensor, norm: nn.Module | None) -> Tensor:
    return x if norm is None else norm(x)

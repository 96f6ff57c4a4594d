"""A linear recurrence of one number a channel, whose decay and input are gated: that of Griffin and RecurrentGemma."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site, refuse
from builder.components.ssm import SSM, Convolution
from builder.finding import Finding, Status
from builder.model.activations import ACTIVATIONS, Activation, gated
from builder.model.compact import Compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.row_state import RowState
from builder.model.scan import scan
from builder.registry import register

SHARPNESS = 8.0
"""The exponent c of the decay, which the paper fixes."""

Decay = Annotated[float, Field(gt=0, lt=1)]


@register("ssm", "rglru")
class RGLRU(SSM):
    """h_t = a_t h_{t-1} + sqrt(1 - a_t^2) i_t u_t,  a_t = exp(-8 softplus(decay) r_t)  (De et al. 2024, "Griffin"):

        x --input--> conv --> u (E)        u --input_gate--> sigmoid --> i (E)
        h act(x W_gate) --output--> (D)    u --decay_gate--> sigmoid --> r (E)

    Both gates are maps of blocks, each of which knows its own E / n_blocks channels alone. The first token of a
    document is taken in whole: h = i u. The state holds E d_conv + 1 numbers a row, however long it is.
    """

    class Config(BaseConfig):
        """The knobs of a recurrent block.

        d_inner       channels, E; None: d_model
        n_blocks      of channels in the maps of the gates
        d_conv        tokens that the convolution sees
        activation    of the branch that what is read is multiplied by
        bias          of the maps input, gate and output
        decay_min     e^-softplus(decay) lies between these two at first; its square is uniform
        decay_max
        """

        name: str = "rglru"
        d_inner: PositiveInt | None = None
        n_blocks: PositiveInt
        d_conv: PositiveInt = 4
        activation: Activation = "gelu_tanh"
        bias: bool = True
        decay_min: Decay = 0.9
        decay_max: Decay = 0.999

        @model_validator(mode="after")
        def _decays_are_a_range(self) -> Self:
            if self.decay_min >= self.decay_max:
                rule = f"less than decay_max={self.decay_max:g}"
                refuse("decay_min", self.decay_min, rule, "decay_min=0.9 decay_max=0.999")
            return self

        def channels(self, d_model: int) -> int:
            """E, in a model of that width."""
            return self.d_inner or d_model

        def grows(self) -> Iterable[str]:
            return () if self.d_inner is None else ("d_inner",)  # blocks grow, so that their maps are as others are

        def shrink(self, site: Site) -> Self:
            blocks = min(self.n_blocks, 2)
            small = {"n_blocks": blocks, "d_inner": self.d_inner and 12 * blocks}
            return self.model_copy(update=small | {"d_conv": min(self.d_conv, 4)})

    roles = {"decay": "own"}

    def __init__(self, config: RGLRU.Config, site: Site):
        super().__init__()
        width = config.channels(site.d_model)
        self.width, self.range = width, (config.decay_min, config.decay_max)
        self.input = Linear(site.d_model, width, bias=config.bias)
        self.gate = Linear(site.d_model, width, bias=config.bias)
        self.conv = Convolution(width, config.d_conv, bias=True)
        self.input_gate = Blocks(width, config.n_blocks)
        self.decay_gate = Blocks(width, config.n_blocks)
        self.decay = nn.Parameter(torch.empty(width))  # (E,)
        self.output = Linear(width, site.d_model, bias=config.bias, role="residual")
        self.activation = ACTIVATIONS[config.activation]
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Draws e^-softplus(decay) as the radius of a point of the ring between the two limits."""
        low, high = (limit**2 for limit in self.range)
        square = torch.empty_like(self.decay).uniform_(low, high, generator=generator)
        self.decay.copy_(torch.expm1(-0.5 * square.log()).log())  # the inverse of softplus

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        inputs = self.input(x)  # (B, T, E)
        before = self.conv.history(inputs, state)
        u = self.conv(inputs, row, before)
        wide = torch.promote_types(u.dtype, torch.float32)
        log = -SHARPNESS * nn.functional.softplus(self.decay.to(wide)) * self.decay_gate(u).to(wide).sigmoid()
        taken = self.input_gate(u).to(wide).sigmoid() * u.to(wide)
        room = (-torch.expm1(2 * log)).clamp_min(torch.finfo(wide).tiny).sqrt()  # whose slope at 0 has no end
        first = self._first(row, state, x)[..., None]  # (B, T, 1)
        a = log.exp().masked_fill(first, 0.0)
        b = taken * room.masked_fill(first, 1.0)
        if row.real is not None:  # behind the last real token the state stays
            real = row.real[..., None]
            a, b = a.masked_fill(~real, 1.0), b.masked_fill(~real, 0.0)
        h = scan(a, b, None if state is None else state["hidden"])  # (B, T, E)
        if state is not None:
            begun = torch.ones_like(h[:, 0, 0]) if row.real is None else row.real.any(1).to(wide)
            state["inputs"], state["hidden"] = row.ends(inputs, before), h[:, -1]
            state["begun"] = torch.maximum(state["begun"], begun)
        return self.output(gated(self.activation, self.gate(x), h.to(x.dtype)))

    def _first(self, row: Compact, state: RowState | None, x: Tensor) -> Tensor:
        """Where a document begins, (B, T): nothing is ahead of it."""
        if row.starts is not None:
            return row.starts
        first = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        first[:, 0] = True if state is None else state["begun"] == 0
        return first

    def flops(self, tokens: int) -> int:
        gates = 2 * tokens * (self.input_gate.weight.numel() + self.decay_gate.weight.numel())
        return super().flops(tokens) + gates

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        wide = {"device": device, "dtype": torch.promote_types(dtype, torch.float32)}
        return RowState(
            inputs=torch.zeros(batch, self.conv.width - 1, self.width, device=device, dtype=dtype),
            hidden=torch.zeros(batch, self.width, **wide),
            begun=torch.zeros(batch, **wide),
        )

    def record(self, ctx: Context, x: Tensor) -> None:
        batch, length = x.shape[:2]
        ctx.record("u, gates", "B T E", batch, length, self.width)
        ctx.record("state", "B E", batch, self.width)
        ctx.record("mixer output", "B T D", *x.shape)

    @classmethod
    def check(cls, config: RGLRU.Config, site: Site) -> Iterable[Finding]:
        width = config.channels(site.d_model)
        found = f"E {width}, {config.n_blocks} blocks, conv {config.d_conv}"
        if width % config.n_blocks:
            fix = f"n_blocks={next(n for n in range(config.n_blocks, 0, -1) if width % n == 0)}"
            yield Finding(Status.FAIL, 1, "n_blocks", found, f"n_blocks must divide the {width} channels", fix)
        else:
            held = width * config.d_conv + 1
            yield Finding(Status.PASS, 1, "n_blocks", found, f"{held:,} numbers are kept a row, however long it is")
        yield from super().check(config, site)


class Blocks(nn.Module):
    """y = x W^T + b for each of n blocks of channels by itself: W (n, E / n, E / n), b (n, E / n)."""

    roles = {"weight": "matrix", "bias": "bias"}

    def __init__(self, channels: int, blocks: int):
        super().__init__()
        size = channels // blocks
        self.weight = nn.Parameter(torch.empty(blocks, size, size))
        self.bias = nn.Parameter(torch.zeros(blocks, size))

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, E) -> (B, T, E)."""
        parts = x.unflatten(-1, self.bias.shape)  # (B, T, n, E / n)
        return (torch.einsum("btni,noi->btno", parts, self.weight) + self.bias).flatten(2)  # (B, T, E)

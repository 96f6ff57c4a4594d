"""A recurrence that reads, beside the stream, what a Transformer block makes of it: one block serves several layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Any, Self

import torch
from pydantic import NonNegativeInt, PositiveInt, field_validator
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Room, Site
from builder.components.attention import Mixer
from builder.model.activations import ACTIVATIONS, Activation, gated
from builder.model.context import Context
from builder.model.linear import Linear, linear_flops
from builder.registry import register

from ._both import Both, inside


@register("ssm", "memory")
class Memory(Both):
    """x <- x + ssm(norm(x + out(T(x, e)))), e what entered the first layer (Glorioso et al. 2024, "Zamba2"):

        T:  [x; e] --norm--> attention --norm--> (act(y W_gate + y A B_gate) * (y W_up + y A B_up)) W_down

    T's weights are those of all layers with this config; A (D, R), B and `out` are a layer's own. The attention works
    on vectors of width 2 D and gives D; nothing is added around it. The layer that has T first holds its weights.
    """

    recalls = True

    class Config(BaseConfig):
        """The block that is shared, and what reads it.

        attention     of T, of width 2 d_model; its d_head null: 2 d_model / n_heads
        d_ff          inner width of T's ffn
        activation    of its gate
        rank          R, of what each layer adds to the ffn's maps
        weights       which set of weights: layers that are to have another one state another number
        ssm           the recurrence
        """

        name: str = "memory"
        attention: Annotated[BaseConfig, Room("attention")]
        d_ff: PositiveInt
        activation: Activation = "gelu"
        rank: PositiveInt
        weights: NonNegativeInt = 0
        ssm: Annotated[BaseConfig, Room("ssm", "recurrent")]

        @field_validator("attention", "ssm")
        @classmethod
        def _both_stand_in_a_mixer(cls, value: Any) -> Any:
            return inside(value)

        def grows(self) -> Iterable[str]:
            return ("d_ff",)

        def shrink(self, site: Site) -> Self:
            inner = {"attention": self.attention.shrink(_doubled(site)), "ssm": self.ssm.shrink(site)}
            return self.model_copy(update=inner | {"d_ff": 16, "rank": min(self.rank, 3)})

    def __init__(self, config: Memory.Config, site: Site):
        super().__init__()
        key = config.model_dump_json(exclude={"ssm"})
        if key in site.together:
            self.__dict__["core"] = site.together[key]  # not as a child: its weights stand in the first layer
        else:
            self.core = site.together[key] = SharedBlock(config, site)
        self.low = Linear(site.d_model, config.rank)
        self.low_gate = Linear(config.rank, config.d_ff)
        self.low_up = Linear(config.rank, config.d_ff)
        self.out = Linear(site.d_model, site.d_model)
        self.ssm: Mixer = config.ssm.component(config.ssm, site)

    def ahead(self, x: Tensor, ctx: Context) -> Tensor:
        beside = replace(ctx, state=None if ctx.state is None else ctx.state.parts[0])
        y = self.core.read(x, x if ctx.embedded is None else ctx.embedded, beside)  # (B, T, D)
        low = self.low(y)  # (B, T, R)
        return x + self.out(self.core.answer(y, self.low_gate(low), self.low_up(low)))

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        return self.ssm(x, replace(ctx, state=None if ctx.state is None else ctx.state.parts[1]))

    @property
    def sides(self) -> tuple[Mixer, Mixer]:
        return self.core.attention, self.ssm

    def flops(self, tokens: int) -> int:
        own = sum(linear_flops(part, tokens) for part in (self.low, self.low_gate, self.low_up, self.out))
        return own + self.core.flops(tokens) + self.ssm.flops(tokens)

    @classmethod
    def inner(cls, config: Memory.Config, site: Site) -> Iterable[tuple[str, BaseConfig, Site]]:
        return [("attention", config.attention, _doubled(site)), ("ssm", config.ssm, site)]


class SharedBlock(nn.Module):
    """T of `Memory`, but for what each layer adds to it."""

    def __init__(self, config: Memory.Config, site: Site):
        super().__init__()
        width, wide, norm, attention = site.d_model, _doubled(site), site.norm, config.attention
        kind: Any = norm.component
        self.mixer_norm = kind(norm, 2 * width)
        self.attention: Mixer = attention.component(attention, wide)
        self.attention.o = Linear(self.attention.o.in_features, width)  # type: ignore[union-attr, arg-type]
        self.ffn_norm = kind(norm, width)
        self.gate, self.up = Linear(width, config.d_ff), Linear(width, config.d_ff)
        self.down = Linear(config.d_ff, width)
        self.activation = ACTIVATIONS[config.activation]

    def read(self, x: Tensor, embedded: Tensor, ctx: Context) -> Tensor:
        """x and what entered the first layer, (B, T, D) each -> what the ffn reads, (B, T, D)."""
        return self.ffn_norm(self.attention(self.mixer_norm(torch.cat((x, embedded), dim=-1)), ctx))

    def answer(self, y: Tensor, gate: Tensor, up: Tensor) -> Tensor:
        """y (B, T, D), and what a layer adds to the ffn's maps, (B, T, F) each -> (B, T, D)."""
        return self.down(gated(self.activation, self.gate(y) + gate, self.up(y) + up))

    def flops(self, tokens: int) -> int:
        """FLOPs of one use."""
        return self.attention.flops(tokens) + sum(linear_flops(m, tokens) for m in (self.gate, self.up, self.down))


def _doubled(site: Site) -> Site:
    """Where the attention stands: the stream and the embedded tokens side by side."""
    return replace(site, d_model=2 * site.d_model)

"""Sequence mixers that read other positions by content: the contract of a mixer, and what an attention owes to it.

An attention turns queries and keys with `ctx.position.rotate` before `ctx.state.append` keeps them, adds
`ctx.position.bias(ctx.positions, ctx.key_positions)` to its scores, looks through `self.sees(ctx.mask)`, and drops
weights in training only. GQA does all this in `read`, so a variant that changes what heads give need not do it again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from builder.component import Component
from builder.model.context import Context
from builder.model.linear import linear_flops
from builder.model.mask import Mask
from builder.model.state import LayerState


class Mixer(nn.Module, Component):
    """A part of a layer that mixes positions; built as `Mixer(config, site)`, called as `forward(x, ctx)`.

    It may look at other positions only as far as `ctx.mask` lets it, with and without `ctx.state`.
    Modules say in `roles` what their parameters are, so that initialisation and weight decay know (see
    components/init): a table of biases is a `bias`.
    """

    part: ClassVar[str] = "mixer"

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D); with `ctx.state`, T new positions behind those already in the state."""
        raise NotImplementedError

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add: its linear maps, and what else it does.

        A mixer that multiplies anything but its linear maps adds that; the checklist counts a run and compares.
        """
        return linear_flops(self, tokens)

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> LayerState:
        """An empty state for `batch` rows of at most `max_length` tokens."""
        raise NotImplementedError

    def sees(self, mask: Mask) -> Mask:
        """The part of the pass's mask that this mixer looks through; a local mixer narrows it."""
        return mask

    @staticmethod
    def position_of(config: Any) -> Any:
        """The position slot of this mixer's config; None stands for the model's."""
        return getattr(config, "position", None)

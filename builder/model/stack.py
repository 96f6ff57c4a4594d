"""The layers of one tower, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from builder.components.position import Position

from .context import Context
from .state import LayerState, State


class Stack(nn.ModuleList):
    """Runs a list of blocks one after the other, each with its own view of the pass."""

    def forward(
        self,
        x: Tensor,
        ctx: Context,
        positions: Sequence[Position],
        crossed: Mapping[int, Position | None],
        state: State | None,
    ) -> Tensor:
        """x (B, T, D) -> (B, T, D); `positions` and the layers of `state` hold one entry per layer, `crossed` one for
        each that reads a source."""
        if state is not None and len(state.layers) != len(self):
            found = f"state: it was made for {len(state.layers)} layers and this model has {len(self)}"
            raise ValueError(f"{found}; make it with this model's new_state")
        states: Sequence[LayerState | None] = state.layers if state is not None else [None] * len(self)
        for index, block in enumerate(self):
            told = ctx.aux.empty(block)
            source = ctx.source
            if index in crossed and source is not None:
                source = source.of(index, crossed[index])
            x = block(x, ctx.of_layer(positions[index], told, states[index], source))
            ctx.aux.add_layer(index, told)
        return x

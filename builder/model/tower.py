"""One stack of layers with its entry, its position schemes and its final norm: a decoder, or what reads a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from builder.components.attention import Mixer
from builder.components.position import Position
from builder.spec import ModelSpec

from .context import Aux, Context
from .embedding import Embedding
from .placement import place
from .source import Source
from .stack import Stack
from .state import LayerState, State


class Tower(nn.Module):
    """tokens (B, T) -> embedding (B, T, D) -> layers x L -> final norm (B, T, D).

    `positions` holds one scheme for each that some layer uses; `slots[i]` names that of layer i's mixer, and `crossed`
    that of its reading of a source, by layer, None where it has none.
    """

    def __init__(
        self,
        spec: ModelSpec,
        embedding: Embedding,
        positions: nn.ModuleDict,
        layers: Stack,
        final_norm: nn.Module | None,
    ):
        super().__init__()
        self.spec = spec
        self.slots = [spec.scheme_of(layer) for layer in spec.layers]
        parts = {layer.index: layer.part("cross") for layer in spec.layers}
        self.crossed = {
            index: part.slot if part.slot in positions else None for index, part in parts.items() if part is not None
        }
        self.recalls = any(layer.mixer.config.component.recalls for layer in spec.layers)
        self.embedding = embedding
        self.positions = positions
        self.layers = layers
        self.final_norm = final_norm

    @property
    def schemes(self) -> Mapping[str, Position]:
        """The position schemes by name."""
        return dict(self.positions.items())  # type: ignore[arg-type]

    def at(
        self, tokens: Tensor, real: Tensor | None, positions: Tensor | None, segments: Tensor | None,
        prefix: Tensor | None, state: State | None, aux: Aux,
    ) -> Context:  # fmt: skip
        """Where a pass over tokens (B, T) stands; a state is told of it."""
        told = {"real": real, "positions": positions, "segments": segments, "prefix": prefix}
        return place(tokens, **told, state=state, causal=self.spec.causal, schemes=self.schemes, aux=aux)

    def through(self, tokens: Tensor, ctx: Context, types: Tensor | None = None, state: State | None = None) -> Tensor:
        """What the layers make of tokens (B, T), not yet normed: (B, T, D)."""
        x = self.embedding(tokens, ctx.positions, ctx.position, types)  # (B, T, D)
        ctx.record("X", "B T D", *x.shape)
        ctx = replace(ctx, embedded=x) if self.recalls else ctx
        schemes = self.schemes
        crossed = {index: None if slot is None else schemes[slot] for index, slot in self.crossed.items()}
        x = self.layers(x, ctx, [schemes[slot] for slot in self.slots], crossed, state)
        if state is not None:
            state.length += tokens.shape[1]
        return x

    def normed(self, x: Tensor) -> Tensor:
        """What leaves the layers, x (B, T, D), through the final norm if there is one."""
        return x if self.final_norm is None else self.final_norm(x)

    def new_states(self, batch: int, max_length: int) -> list[LayerState]:
        """An empty state of each layer's mixer."""
        weight = self.embedding.weight
        like = {"device": weight.device, "dtype": weight.dtype}
        mixers: list[Mixer] = [block.get_submodule("mixer") for block in self.layers]  # type: ignore[assignment]
        return [mixer.new_state(batch, max_length, **like) for mixer in mixers]

    def layer_flops(self, tokens: int) -> int:
        """FLOPs of the layers over one sequence of `tokens` tokens, and a source as long."""
        return sum(block.flops(tokens) for block in self.layers)  # type: ignore[operator]


class Encoder(Tower):
    """The tower that reads a source in both directions; its table of vectors is the decoder's."""

    def forward(self, tokens: Tensor, real: Tensor | None, types: Tensor | None, aux: Aux) -> Source:
        """tokens (B, S), real (B, S) bool or None for all -> what a decoder reads of them."""
        told = aux.empty()
        ctx = self.at(tokens, real, None, None, None, None, told)
        hidden = self.normed(self.through(tokens, ctx, types))  # (B, S, D)
        ctx.record("source", "B S D", *hidden.shape)
        aux.add(told.within("encoder"))
        return Source(hidden, ctx.positions, ctx.mask)

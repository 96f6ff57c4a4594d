"""The whole model: embedding, layers, final norm, head; one forward pass with or without a state."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from builder.components.attention import Mixer
from builder.components.position import Position
from builder.errors import ArchlabError
from builder.spec import ModelSpec

from .context import Aux, Context
from .embedding import Embedding
from .linear import Linear, linear_flops
from .mask import Mask
from .positions import Positions, count, count_real, count_within
from .stack import Stack
from .state import State


@dataclass(frozen=True)
class Output:
    """What a pass returns: logits (B, T, V), the hidden states (B, T, D) they come from, and what layers reported."""

    logits: Tensor
    hidden: Tensor
    aux: Aux


class TooLong(ArchlabError, ValueError):
    """A sequence reaches past what the model holds positions for."""


class LanguageModel(nn.Module):
    """Token ids to logits (chapter 3.7):

        tokens (B, T) -> embedding (B, T, D) -> layers x L -> final norm -> head (B, T, V)

    Built by `builder.build`. `positions` holds one scheme for each that some layer uses; `slots[i]` names layer i's.
    """

    def __init__(
        self, spec: ModelSpec, embedding: Embedding, positions: nn.ModuleDict, slots: list[str], layers: Stack,
        final_norm: nn.Module | None, head: Linear,
    ) -> None:  # fmt: skip
        super().__init__()
        self.spec = spec
        self.slots = slots
        self.embedding = embedding
        self.positions = positions
        self.layers = layers
        self.final_norm = final_norm
        self.head = head
        if spec.tie_embeddings:
            self.head.weight = self.embedding.weight
        self.n_tokens = self.vocab_size
        """Ids that may be sampled: the tokenizer's; rows past it only pad the vocabulary."""

    @property
    def vocab_size(self) -> int:
        return self.embedding.num_embeddings

    @property
    def deploy_length(self) -> int:
        return self.spec.deploy_length

    def forward(
        self,
        tokens: Tensor,
        *,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        state: State | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        last_only: bool = False,
        aux: Aux | None = None,
    ) -> Output:
        """tokens (B, T) int64 -> Output.

        attention_mask  (B, T) true where a real token stands; None: everywhere
        positions       (B, T) int64; None: the count of real tokens before, restarting with each segment
        segments        (B, T) numbers the documents of a packed row; a token sees its own document only
        state           what came before, from `new_state`; this pass is appended to it
        last_only       logits and hidden of the last position alone, as prefill needs them

        Raises TooLong when a position has no entry in a table, or the state no room; ValueError for arguments that
        don't fit together.
        """
        if source is not None or source_mask is not None:
            raise ValueError("source: a decoder reads no source; it needs model.kind: encoder_decoder")
        aux = aux or Aux()
        ctx = self._context(tokens, attention_mask, positions, segments, state, aux)
        x = self.embedding(tokens, ctx.positions, self._scheme("model"))  # (B, T, D)
        ctx.record("X", "B T D", *x.shape)
        x = self.layers(x, ctx, [self._scheme(slot) for slot in self.slots], state)
        if state is not None:
            state.length += tokens.shape[1]
        x = x[:, -1:] if last_only else x
        hidden = self.final_norm(x) if self.final_norm is not None else x
        logits = self.head(hidden)  # (B, T, V)
        ctx.record("logits", "B T V", *logits.shape)
        return Output(logits, hidden, aux)

    def new_state(self, batch_size: int, max_length: int) -> State:
        """An empty state for `batch_size` rows of at most `max_length` tokens, on the model's device, in its dtype."""
        weight = self.embedding.weight
        place = {"device": weight.device, "dtype": weight.dtype}
        mixers: list[Mixer] = [block.get_submodule("mixer") for block in self.layers]  # type: ignore[assignment]
        layers = [mixer.new_state(batch_size, max_length, **place) for mixer in mixers]
        return State(layers, batch_size, max_length, weight.device)

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence of `tokens` tokens, two for each multiply-add.

        Causal attention counts in full, as torch's own counter has it; element-wise work doesn't count.
        """
        layers = sum(block.flops(tokens) for block in self.layers)  # type: ignore[operator]
        return layers + linear_flops(self.head, tokens)

    def _scheme(self, slot: str) -> Position:
        return self.positions[slot]  # type: ignore[return-value]

    def _context(
        self, tokens: Tensor, real: Tensor | None, positions: Tensor | None, segments: Tensor | None,
        state: State | None, aux: Aux,
    ) -> Context:  # fmt: skip
        if state is not None and segments is not None:
            raise ValueError("segments: a state holds one document a row; prefill packed rows without a state")
        for name, argument in (("attention_mask", real), ("positions", positions), ("segments", segments)):
            if argument is not None and argument.shape != tokens.shape:
                found = f"{name} has shape {tuple(argument.shape)} and the tokens of this pass {tuple(tokens.shape)}"
                raise ValueError(f"{found}; give it one entry for each token of this pass, not for those in the state")
        past = state.length if state is not None else 0
        if state is not None:
            state.refuse_misfit(tokens)
        self._refuse_past_the_end(past + tokens.shape[1], positions)
        real = real.bool() if real is not None else None
        ids = positions if positions is not None else self._count(tokens, real, segments, state)
        own = Positions(ids)
        mask = Mask(causal=self.spec.causal, real=real, segments=segments, past=past)
        keys = own
        if state is not None:
            state.write(ids, real)
            end = past + tokens.shape[1]
            keys = Positions(state.positions[:, :end]) if past else own
            mask = Mask(causal=self.spec.causal, real=None if state.real is None else state.real[:, :end], past=past)
        return Context(own, keys, mask, self._scheme("model"), layer=None, aux=aux)

    def _count(self, tokens: Tensor, real: Tensor | None, segments: Tensor | None, state: State | None) -> Tensor:
        """The default positions of this pass, (B, T) or (1, T)."""
        if segments is not None:
            return count_within(segments, real)
        counted = state.counted if state is not None else None
        if real is None and counted is None:
            return count(tokens.shape[1], state.length if state is not None else 0, tokens.device)
        if counted is None and state is not None:
            counted = torch.full(tokens.shape[:1], state.length, device=tokens.device)
        return count_real(torch.ones_like(tokens, dtype=torch.bool) if real is None else real, counted)

    def _refuse_past_the_end(self, length: int, positions: Tensor | None) -> None:
        """`length` is what the default positions reach; those that are given are looked at where a table ends."""
        for slot, scheme in self.positions.items():
            limit: int | None = scheme.limit  # type: ignore[assignment]
            if limit is None:
                continue
            reach = length
            if positions is not None:
                reach = int(positions.max()) + 1 if positions.numel() else 0
            if reach > limit:
                where = "model.position" if slot == "model" else f"model.{slot}.position"
                raise TooLong(
                    f"{where}: a sequence of {reach} tokens, but the table holds {limit} positions; "
                    f"give at most {limit} tokens, or train a model with a longer table"
                )

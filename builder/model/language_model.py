"""The whole model: embedding, layers, final norm, head, and what reads a source; one pass, with or without a state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn

from builder.components.attention import Mixer
from builder.components.head import Head
from builder.layers import LayerSpec
from builder.spec import ModelSpec

from .context import Aux
from .embedding import Embedding
from .source import Source, SourceState
from .stack import Stack
from .state import State
from .tower import Encoder, Tower


@dataclass(frozen=True)
class Output:
    """What a pass returns: what the head gives, logits (B, T, V) of a language model's, the hidden states (B, T, D)
    that it comes from, and what layers reported.

    Where logits weren't asked for they are those of no position, (B, 0, V).
    """

    logits: Tensor
    hidden: Tensor
    aux: Aux


class LanguageModel(Tower):
    """Token ids to what the head gives, logits in a language model (chapter 3.7):

        tokens (B, T) -> embedding (B, T, D) -> layers x L -> final norm -> head (B, T, V)

    Built by `builder.build`. An encoder-decoder reads its source first, in `encoder`, whose table of vectors is the
    same (chapter 3.8).
    """

    def __init__(
        self, spec: ModelSpec, embedding: Embedding, positions: nn.ModuleDict, layers: Stack,
        final_norm: nn.Module | None, head: Head, encoder: Encoder | None = None,
    ) -> None:  # fmt: skip
        super().__init__(spec, embedding, positions, layers, final_norm)
        self.head = head
        self.encoder = encoder
        if spec.tie_embeddings:
            self.head.weight = self.embedding.weight
        if encoder is not None:
            encoder.embedding.weight = self.embedding.weight
        self.n_tokens = self.vocab_size
        """Ids that may be sampled: the tokenizer's; rows past it only pad the vocabulary."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: ids that may be read."""
        return self.embedding.num_embeddings

    @property
    def deploy_length(self) -> int:
        """Tokens that a generation may reach, prompt and answer together."""
        return self.spec.deploy_length

    @property
    def towers(self) -> dict[str, Tower]:
        """The stacks of layers, as `spec.towers` names them."""
        return {"": self} if self.encoder is None else {"": self, "encoder": self.encoder}

    def blocks(self) -> Iterator[tuple[LayerSpec, nn.Module]]:
        """Every layer of every tower, as it is described and as it was built; a shared block at each of its places."""
        for tower in self.towers.values():
            yield from zip(tower.spec.layers, tower.layers, strict=True)

    def forward(
        self,
        tokens: Tensor,
        *,
        attention_mask: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        prefix: Tensor | None = None,
        types: Tensor | None = None,
        state: State | None = None,
        source: Tensor | None = None,
        source_mask: Tensor | None = None,
        last_only: bool = False,
        logits: bool = True,
        aux: Aux | None = None,
    ) -> Output:
        """tokens (B, T) int64 -> Output.

        attention_mask  (B, T) true where a real token stands; None: everywhere
        positions       (B, T) int64; None: the count of real tokens before, restarting with each segment
        segments        (B, T) numbers the documents of a packed row; a token sees its own document only
        prefix          (B, T) true where tokens see each other in both directions, in a model with `prefix`
        types           (B, T) the kind of each token, in a model with `embedding.types`; None: all of kind 0
        state           what came before, from `new_state`; this pass is appended to it
        source          (B, S) int64, what an encoder-decoder reads; with a state in the first pass over it alone
        source_mask     (B, S) true where a real token of the source stands; None: everywhere
        last_only       logits and hidden of the last position alone, as prefill needs them
        logits          whether they are computed; a loss may be had from hidden and `head` without them

        Raises TooLong when a position has no entry in a table; ValueError when the state has no room, and for arguments
        that don't fit together.
        """
        if prefix is not None and not self.spec.prefix:
            raise ValueError("prefix: this model sees from left to right only; it needs model.prefix: true")
        aux = aux or Aux()
        read = self._read(source, source_mask, state, len(tokens), aux)
        ctx = self.at(tokens, attention_mask, positions, segments, prefix, state, aux)
        ctx = ctx if read is None else replace(ctx, source=read)
        x = self.through(tokens, ctx, types, state)
        x = x[:, -1:] if last_only else x
        hidden = self.normed(x)
        if logits:
            real = ctx.mask.real_queries(tokens.shape[1])
            scores = self.head(hidden, real[:, -1:] if real is not None and last_only else real)
        else:
            scores = hidden.new_empty(len(hidden), 0, self.vocab_size)
        ctx.record("logits", "B T V" if scores.ndim == 3 else "B C", *scores.shape)
        return Output(scores, hidden, ctx.aux)

    def new_state(self, batch_size: int, max_length: int) -> State:
        """An empty state for `batch_size` rows of at most `max_length` tokens, on the model's device, in its dtype."""
        weight = self.embedding.weight
        layers = self.new_states(batch_size, max_length)
        return State(layers, batch_size, max_length, weight.device, source=self._new_source(batch_size, max_length))

    def flops(self, tokens: int) -> int:
        """FLOPs of a pass over one sequence of `tokens` tokens, and a source as long, two for each multiply-add.

        Causal attention counts in full, as torch's own counter has it; element-wise work doesn't count.
        """
        return sum(tower.layer_flops(tokens) for tower in self.towers.values()) + self.head.flops(tokens)

    def _read(
        self, source: Tensor | None, mask: Tensor | None, state: State | None, batch: int, aux: Aux
    ) -> Source | None:
        """What there is of a source: given now, or kept in the state."""
        if self.encoder is None:
            if source is not None or mask is not None:
                raise ValueError(f"source: a {self.spec.kind} reads none; it needs model.kind: encoder_decoder")
            return None
        kept = None if state is None else state.source
        if source is None:
            if kept is None:
                raise ValueError("source: an encoder_decoder reads one: model(tokens, source=...)")
            return kept.kept()
        if len(source) != batch:
            raise ValueError(f"source has {len(source)} rows and the tokens have {batch}: one source for each row")
        read = self.encoder(source, mask, None, aux)
        return read if kept is None else kept.keep(read)

    def _new_source(self, batch: int, max_length: int) -> SourceState | None:
        if self.encoder is None:
            return None
        weight = self.embedding.weight
        like = {"device": weight.device, "dtype": weight.dtype}
        parts: dict[int, Mixer] = {index: self.layers[index].get_submodule("cross") for index in self.crossed}  # type: ignore[assignment]
        return SourceState({index: part.new_state(batch, max_length, **like) for index, part in parts.items()})  # type: ignore[misc]

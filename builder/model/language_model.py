"""The whole model: embedding, layers, final norm, head; one forward pass with or without a state."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from builder.components.attention import Mixer
from builder.components.position import Position
from builder.spec import ModelSpec

from .context import Aux
from .embedding import Embedding
from .head import Head
from .linear import linear_flops
from .placement import place
from .stack import Stack
from .state import State


@dataclass(frozen=True)
class Output:
    """What a pass returns: logits (B, T, V), the hidden states (B, T, D) they come from, and what layers reported.

    Where logits weren't asked for they are those of no position, (B, 0, V).
    """

    logits: Tensor
    hidden: Tensor
    aux: Aux


class LanguageModel(nn.Module):
    """Token ids to logits (chapter 3.7):

        tokens (B, T) -> embedding (B, T, D) -> layers x L -> final norm -> head (B, T, V)

    Built by `builder.build`. `positions` holds one scheme for each that some layer uses; `slots[i]` names layer i's.
    """

    def __init__(
        self, spec: ModelSpec, embedding: Embedding, positions: nn.ModuleDict, slots: list[str], layers: Stack,
        final_norm: nn.Module | None, head: Head,
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
        logits: bool = True,
        aux: Aux | None = None,
    ) -> Output:
        """tokens (B, T) int64 -> Output.

        attention_mask  (B, T) true where a real token stands; None: everywhere
        positions       (B, T) int64; None: the count of real tokens before, restarting with each segment
        segments        (B, T) numbers the documents of a packed row; a token sees its own document only
        state           what came before, from `new_state`; this pass is appended to it
        last_only       logits and hidden of the last position alone, as prefill needs them
        logits          whether they are computed; a loss may be had from hidden and `head` without them

        Raises TooLong when a position has no entry in a table; ValueError when the state has no room, and for arguments
        that don't fit together.
        """
        if source is not None or source_mask is not None:
            raise ValueError("source: a decoder reads no source; it needs model.kind: encoder_decoder")
        schemes: dict[str, Position] = dict(self.positions.items())  # type: ignore[arg-type]
        ctx = place(
            tokens,
            real=attention_mask,
            positions=positions,
            segments=segments,
            state=state,
            causal=self.spec.causal,
            schemes=schemes,
            aux=aux or Aux(),
        )
        x = self.embedding(tokens, ctx.positions, ctx.position)  # (B, T, D)
        ctx.record("X", "B T D", *x.shape)
        x = self.layers(x, ctx, [schemes[slot] for slot in self.slots], state)
        if state is not None:
            state.length += tokens.shape[1]
        x = x[:, -1:] if last_only else x
        hidden = self.final_norm(x) if self.final_norm is not None else x
        scores = self.head(hidden) if logits else hidden.new_empty(len(hidden), 0, self.vocab_size)  # (B, T, V)
        ctx.record("logits", "B T V", *scores.shape)
        return Output(scores, hidden, ctx.aux)

    def new_state(self, batch_size: int, max_length: int) -> State:
        """An empty state for `batch_size` rows of at most `max_length` tokens, on the model's device, in its dtype."""
        weight = self.embedding.weight
        like = {"device": weight.device, "dtype": weight.dtype}
        mixers: list[Mixer] = [block.get_submodule("mixer") for block in self.layers]  # type: ignore[assignment]
        layers = [mixer.new_state(batch_size, max_length, **like) for mixer in mixers]
        return State(layers, batch_size, max_length, weight.device)

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence of `tokens` tokens, two for each multiply-add.

        Causal attention counts in full, as torch's own counter has it; element-wise work doesn't count.
        """
        layers = sum(block.flops(tokens) for block in self.layers)  # type: ignore[operator]
        return layers + linear_flops(self.head, tokens)

"""The loop: prefill the prompt once, then one token a step through the model's state, until each row has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ..errors import ArchlabError
from .beams import Search, refuse_beside, search
from .compiled import Step, step_of
from .request import (
    GenerationError,
    check_call,
    check_draft,
    check_length,
    check_model,
    read_beside,
    read_ends,
    read_prompt,
    read_state,
)
from .sampling import Chooser, Sampler, seen_in
from .speculate import PROPOSED, Draft, speculate
from .together import unfit
from .written import OnToken, Written


class Generative(Protocol):
    """What `generate` needs of a model, beside being an `nn.Module`."""

    @property
    def deploy_length(self) -> int: ...

    @property
    def n_tokens(self) -> int:
        """Ids that may be emitted."""
        ...

    @property
    def vocab_size(self) -> int:
        """Rows of the embedding: ids that may be read."""
        ...

    def new_state(self, batch_size: int, max_length: int) -> Any: ...

    def __call__(
        self, tokens: Tensor, *, state: Any, attention_mask: Tensor | None, last_only: bool, **beside: Tensor
    ) -> Any: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def eval(self) -> Any: ...


@dataclass(frozen=True)
class GenerateResult:
    """New tokens only, on the model's device; N is that of the longest row, at most max_new_tokens.

    tokens (B, N) int64, the EOS once, then pad; lengths (B,) int64, the EOS included; logprobs (B, N) float32, under
    the model's own distribution (see `Sampler`), 0 where padded; accepted, the share of what a draft model proposed
    that was used, None when it proposed nothing.
    """

    tokens: Tensor
    lengths: Tensor
    logprobs: Tensor
    accepted: float | None = None


def generate(
    model: Generative,
    tokens: Tensor,
    *,
    max_new_tokens: int,
    attention_mask: Tensor | None = None,
    eos: int | Iterable[int] | Tensor | None = None,
    pad: int = 0,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float | None = None,
    min_p: float | None = None,
    repetition_penalty: float | None = None,
    num_beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    seed: int | None = None,
    on_token: OnToken | None = None,
    state: Any = None,
    source: Tensor | None = None,
    source_mask: Tensor | None = None,
    draft: Generative | None = None,
    draft_tokens: int | None = None,
    compile: bool = False,
) -> GenerateResult:
    """Continues each row of tokens (B, T) by up to `max_new_tokens`, or to its first `eos`, greedily unless asked.

    Prompts of unequal length are padded on the left, with `attention_mask` (B, T) true where a real token stands.
    `eos` is an id, several, or None never to stop; an EOS in the prompt stops nothing. The sampling knobs are those
    of `Sampler`; the penalty counts the prompt's ids, padding excluded. `seed` None draws a fresh one; the whole batch
    draws from one generator, so a sampled row depends on its batch. With `num_beams` > 1 the likeliest answer of a beam
    search is returned (`beams.Search`). `on_token(step, ids (B,))` sees each new column, pad where a row has ended;
    those of a beam search when they are known, at its end.

    `state` holds what comes before the tokens, of B rows or of one that all rows share: `model.new_state(...)`, with
    room for prompt and answer too, which has read it. It is copied, and stays as it is. The penalty doesn't count it.
    An encoder-decoder reads `source` (B, S) once, its padding told by `source_mask` (B, S), and writes behind `tokens`,
    which then begin the target. In a model with a prefix the prompt is one: it is seen in both directions.
    `draft` is a smaller model of the same vocabulary: it proposes `draft_tokens` at a time, or 4, which the model reads
    at once, and keeps as far as it would have chosen them (see `speculate`). Greedily that changes nothing but the
    time; sampled answers follow the same distribution.
    With `compile` the step of a token is compiled by torch as a whole, and kept for as long as the model is: the first
    call takes many seconds, as does the first one of another kind (one row or several, padded or not), and the others
    less time (see `step_of`). A draft, behind which a model reads several tokens a step, can't be had beside it.

    Raises `GenerationError` (a ValueError) before any compute for what cannot be served: a prompt + max_new_tokens past
    `model.deploy_length`, an empty or right-padded prompt, an id or knob out of range, an argument of another kind, and
    a knob that nothing reads beside the others (`together.unfit`); `ArchlabError` if the model's logits are not finite.
    The model is left as found: training flags, gradients, RNG.
    """
    check_model("model", model)
    if draft is not None:
        check_model("draft", draft)
    check_call(seed, on_token, compile)
    sampler = Sampler(temperature, top_k, top_p, min_p, repetition_penalty)
    asked = Search(num_beams, length_penalty, early_stopping)
    refuse_beside(num_beams, vars(sampler))
    how = {"num_beams": num_beams, "early_stopping": early_stopping}
    if problems := unfit({**how, "draft": draft, "draft_tokens": draft_tokens, "compile": compile}):
        raise GenerationError(*problems)
    tokens, mask = read_prompt(tokens, attention_mask, model.vocab_size)
    ends, pad = read_ends(eos, pad, model.n_tokens, model.vocab_size)
    beside = read_beside(model, tokens, mask, state, source, source_mask)
    before = 0 if state is None else read_state(state, tokens, max_new_tokens)
    check_length(before + tokens.shape[1], max_new_tokens, model.deploy_length)
    proposed = PROPOSED if draft_tokens is None else draft_tokens
    if draft is not None:
        check_draft(model, draft, proposed, tokens, max_new_tokens, state)
    device = next(model.parameters()).device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(int(seed))
    tokens, mask = tokens.to(device), None if mask is None else mask.to(device)
    beside = {name: given.to(device) for name, given in beside.items()}
    written, accepted = Written(len(tokens), ends, pad, on_token, device), None
    step = step_of(model, compile)
    with _evaluating(model), _evaluating(draft), torch.inference_mode():
        start = _state(model, state, tokens, mask, max_new_tokens)
        logits = model(tokens, attention_mask=mask, state=start, last_only=True, **beside).logits[:, -1]  # (B, V)
        if num_beams > 1:
            _searched(model, step, start.expand(num_beams), logits, max_new_tokens, ends, pad, asked, written)
        else:
            counts = sampler.repetition_penalty is not None
            seen = seen_in(tokens, mask, model.vocab_size) if counts else None
            chooser = Chooser(sampler, generator, model.n_tokens, seen)
            if draft is None:
                _decode(step, start, logits, chooser, max_new_tokens, written)
            else:
                proposer = Draft(draft, tokens, mask, max_new_tokens)
                accepted = speculate(model, start, logits, chooser, max_new_tokens, written, proposer, proposed)
    ids, logprobs, alive = (
        torch.stack(column, 1) for column in (written.ids, written.logprobs, written.alive)
    )  # (B, N)
    if not bool(logprobs.isfinite().all()):
        step = int((~logprobs.isfinite()).any(0).nonzero()[0, 0])
        text = f"the model's logits at new token {step} are not finite; found NaN or inf, so its text means nothing"
        raise ArchlabError(f"{text}; look at the weights (a diverged run, a bad checkpoint) or use dtype=float32")
    return GenerateResult(ids, alive.sum(1), logprobs, accepted)


def _state(model: Generative, given: Any, tokens: Tensor, mask: Tensor | None, more: int) -> Any:
    """A state of a row for each of tokens (B, T), with what is given in it and room for `more` tokens behind."""
    batch, length = tokens.shape
    if given is None:
        return model.new_state(batch, length + more)
    return given.expand(batch // given.rows)


def _decode(step: Step, state: Any, logits: Tensor, chooser: Chooser, max_new_tokens: int, written: Written) -> None:
    """A token a step, the first from logits (B, V)."""
    while True:
        ids = written.add(*chooser.choose(logits))
        if written.ended or len(written) == max_new_tokens:  # the one wait for the device in a step
            return
        chooser.note(ids)
        # a row that has ended is fed pad; it is not looked at again
        logits = step(ids, state)  # (B, V)


def _searched(
    model: Generative,
    step: Step,
    state: Any,
    first: Tensor,
    max_new_tokens: int,
    ends: tuple[int, ...],
    pad: int,
    asked: Search,
    written: Written,
) -> None:
    """Writes the best beam of each row, from logits (B, V) behind the prompt; the state has a row for each beam."""

    def follow(ids: Tensor | None, rows: Tensor | None) -> Tensor:
        if rows is not None:
            state.reorder(rows)
        if ids is None:
            logits = first.repeat_interleave(asked.num_beams, 0)  # (B K, V)
        else:
            logits = step(ids, state)
        return logits[:, : model.n_tokens].float().log_softmax(-1)  # (B K, V)

    best = search(follow, asked, len(first), max_new_tokens, ends, pad, first.device)
    for number in range(int(best.lengths.max())):
        written.going = number < best.lengths[:, 0]
        written.add(best.tokens[:, 0, number], best.logprobs[:, 0, number])


@contextmanager
def _evaluating(model: Generative | None) -> Iterator[None]:
    """Evaluation mode inside; each submodule's own flag afterwards, whatever happened."""
    flags = [] if model is None else [(module, module.training) for module in model.modules()]
    if model is not None:
        model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training

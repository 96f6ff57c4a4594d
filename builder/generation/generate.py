"""The loop: prefill the prompt once, then one token a step through the model's state, until each row has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from ..errors import ArchlabError
from .beams import Search, refuse_beside, search
from .request import check_length, read_eos, read_prompt
from .sampling import Sampler


class Generative(Protocol):
    """What `generate` needs of a model, beside being an `nn.Module`."""

    @property
    def deploy_length(self) -> int: ...

    @property
    def n_tokens(self) -> int: ...  # ids that may be emitted

    @property
    def vocab_size(self) -> int: ...  # rows of the embedding: ids that may be read

    def new_state(self, batch_size: int, max_length: int) -> Any: ...

    def __call__(self, tokens: Tensor, *, state: Any, attention_mask: Tensor | None, last_only: bool) -> Any: ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def eval(self) -> Any: ...


@dataclass(frozen=True)
class GenerateResult:
    """New tokens only, on the model's device; N is that of the longest row, at most max_new_tokens.

    tokens (B, N) int64, the EOS once, then pad; lengths (B,) int64, the EOS included; logprobs (B, N) float32, under
    the model's own distribution (see `Sampler`), 0 where padded.
    """

    tokens: Tensor
    lengths: Tensor
    logprobs: Tensor


def generate(
    model: Generative,
    tokens: Tensor,
    *,
    max_new_tokens: int,
    attention_mask: Tensor | None = None,
    eos: int | Iterable[int] | None = None,
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
    on_token: Callable[[int, Tensor], object] | None = None,
) -> GenerateResult:
    """Continues each row of tokens (B, T) by up to `max_new_tokens`, or to its first `eos`, greedily unless asked.

    Prompts of unequal length are padded on the left, with `attention_mask` (B, T) true where a real token stands.
    `eos` is an id, several, or None never to stop; an EOS in the prompt stops nothing. The sampling knobs are those
    of `Sampler`; the penalty counts the prompt's ids, padding excluded. `seed` None draws a fresh one; the whole batch
    draws from one generator, so a sampled row depends on its batch. With `num_beams` > 1 the likeliest answer of a beam
    search is returned (`beams.Search`). `on_token(step, ids (B,))` sees each new column, pad where a row has ended;
    those of a beam search when they are known, at its end. Raises `GenerationError` (a ValueError) before any compute
    for what cannot be served: a prompt + max_new_tokens past `model.deploy_length`, an empty or right-padded prompt, an
    id or knob out of range; `ArchlabError` if the model's logits are not finite. The model is left as found: training
    flags, gradients, RNG.
    """
    sampler = Sampler(temperature, top_k, top_p, min_p, repetition_penalty)
    asked = Search(num_beams, length_penalty, early_stopping)
    if num_beams > 1:
        refuse_beside({name: value for name, value in vars(sampler).items()})
    tokens, mask = read_prompt(tokens, attention_mask, model.vocab_size)
    ends = read_eos(eos, pad, model.n_tokens, model.vocab_size)
    check_length(tokens.shape[1], max_new_tokens, model.deploy_length)
    device = next(model.parameters()).device
    generator = torch.Generator(device)
    generator.seed() if seed is None else generator.manual_seed(seed)
    tokens, mask = tokens.to(device), None if mask is None else mask.to(device)
    with _evaluating(model), torch.inference_mode():
        if num_beams > 1:
            columns = _searched(model, tokens, mask, max_new_tokens, ends, pad, asked, on_token)
        else:
            columns = _decode(model, tokens, mask, max_new_tokens, ends, pad, sampler, generator, on_token)
    ids, logprobs, alive = (torch.stack(column, 1) for column in zip(*columns, strict=True))  # (B, N)
    if not bool(logprobs.isfinite().all()):
        step = int((~logprobs.isfinite()).any(0).nonzero()[0, 0])
        text = f"the model's logits at new token {step} are not finite; found NaN or inf, so its text means nothing"
        raise ArchlabError(f"{text}; look at the weights (a diverged run, a bad checkpoint) or use dtype=float32")
    return GenerateResult(ids, alive.sum(1), logprobs)


def _decode(
    model: Generative,
    tokens: Tensor,
    mask: Tensor | None,
    max_new_tokens: int,
    ends: tuple[int, ...],
    pad: int,
    sampler: Sampler,
    generator: torch.Generator,
    on_token: Callable[[int, Tensor], object] | None,
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """One (ids, logprobs, alive) of (B,) each for every new column."""
    batch, length = tokens.shape
    state = model.new_state(batch, length + max_new_tokens)
    logits = model(tokens, attention_mask=mask, state=state, last_only=True).logits[:, -1]  # (B, V)
    seen = _seen(tokens, mask, logits.shape[-1]) if sampler.repetition_penalty is not None else None
    stops = torch.tensor(ends, dtype=torch.int64, device=tokens.device)
    alive = torch.ones(batch, dtype=torch.bool, device=tokens.device)
    columns = []
    for step in range(max_new_tokens):
        ids, logprobs = sampler(logits, generator=generator, allowed=model.n_tokens, seen=seen)
        ids, logprobs = torch.where(alive, ids, pad), torch.where(alive, logprobs, 0.0)
        columns.append((ids, logprobs, alive))
        _show(on_token, step, ids)
        if ends:
            alive = alive & ~(ids[:, None] == stops).any(-1)
            if not bool(alive.any()):  # the one wait for the device in a step
                break
        if step + 1 < max_new_tokens:
            if seen is not None:
                seen.scatter_(1, ids[:, None], True)
            # a row that has ended is fed pad; it is not looked at again
            logits = model(ids[:, None], attention_mask=None, state=state, last_only=True).logits[:, -1]  # (B, V)
    return columns


def _searched(
    model: Generative,
    tokens: Tensor,
    mask: Tensor | None,
    max_new_tokens: int,
    ends: tuple[int, ...],
    pad: int,
    asked: Search,
    on_token: Callable[[int, Tensor], object] | None,
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """What `_decode` returns, of the best beam of each row."""
    batch, beams = len(tokens), asked.num_beams
    prompt = tokens.repeat_interleave(beams, 0)  # (B K, T)
    mask = None if mask is None else mask.repeat_interleave(beams, 0)
    state = model.new_state(batch * beams, tokens.shape[1] + max_new_tokens)

    def step(ids: Tensor | None, rows: Tensor | None) -> Tensor:
        if rows is not None:
            state.reorder(rows)
        read, real = (prompt, mask) if ids is None else (ids[:, None], None)
        logits = model(read, attention_mask=real, state=state, last_only=True).logits[:, -1, : model.n_tokens]
        return logits.float().log_softmax(-1)  # (B K, V)

    best = search(step, asked, batch, max_new_tokens, ends, pad, tokens.device)
    columns = []
    for number in range(int(best.lengths.max())):
        alive = number < best.lengths[:, 0]
        ids = torch.where(alive, best.tokens[:, 0, number], pad)
        columns.append((ids, torch.where(alive, best.logprobs[:, 0, number], 0.0), alive))
        _show(on_token, number, ids)
    return columns


def _show(on_token: Callable[[int, Tensor], object] | None, step: int, ids: Tensor) -> None:
    """Hands out an ordinary tensor of its own: the callback may keep or change it."""
    if on_token is not None:
        with torch.inference_mode(False), torch.no_grad():
            on_token(step, ids.clone())


def _seen(tokens: Tensor, mask: Tensor | None, n_rows: int) -> Tensor:
    # the last token is real in every row, so it can stand in for padding
    real = tokens if mask is None else torch.where(mask, tokens, tokens[:, -1:])
    return torch.zeros(len(tokens), n_rows, dtype=torch.bool, device=tokens.device).scatter_(1, real, True)  # (B, V)


@contextmanager
def _evaluating(model: Generative) -> Iterator[None]:
    """Evaluation mode inside; each submodule's own flag afterwards, whatever happened."""
    flags = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in flags:
            module.training = training

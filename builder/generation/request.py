"""What a call of `generate` asks for, read and refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from ..errors import ArchlabError, Problem


class GenerationError(ArchlabError, ValueError):
    """A call of `generate` that cannot be served; the text lists every problem found, by argument."""

    def __init__(self, *problems: Problem):
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


def read_prompt(tokens: Tensor, attention_mask: Tensor | None, vocab_size: int) -> tuple[Tensor, Tensor | None]:
    """The prompt as int64 (B, T) and its mask as bool (B, T), None where nothing is padded.

    Columns that are padding in every row are cut off, so T is the longest row. Raises `GenerationError` for a wrong
    shape or type, an empty prompt, an id outside 0..vocab_size-1, and for a mask row that is not 0...01...1.
    """
    if tokens.ndim != 2 or tokens.dtype not in (torch.int64, torch.int32):
        found = f"shape {tuple(tokens.shape)}, {tokens.dtype}"
        raise GenerationError(Problem("tokens", found, "integer ids (B, T)", "one prompt is torch.tensor([ids])"))
    if tokens.numel() == 0:
        fix = "give each row at least one token, such as the tokenizer's BOS"
        raise GenerationError(Problem("tokens", f"an empty prompt {tuple(tokens.shape)}", "B >= 1, T >= 1", fix))
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocab_size:
        found = f"id {low if low < 0 else high}"
        fix = f"encode with the model's own tokenizer (model.vocab_size = {vocab_size}); padding too needs a valid id"
        raise GenerationError(Problem("tokens", found, f"0 <= id <= {vocab_size - 1}", fix))
    if attention_mask is None:
        return tokens.long(), None
    mask = _read_mask(attention_mask, tokens)
    longest = int(mask.sum(-1).max())
    tokens, mask = tokens[:, -longest:].long(), mask[:, -longest:]
    return tokens, None if bool(mask.all()) else mask


def _read_mask(mask: Tensor, tokens: Tensor) -> Tensor:
    if mask.shape != tokens.shape or mask.is_floating_point() or mask.is_complex():
        found = f"shape {tuple(mask.shape)}, {mask.dtype}"
        rule = f"bool of the tokens' shape {tuple(tokens.shape)}, true where a real token stands"
        raise GenerationError(Problem("attention_mask", found, rule, "tokens != pad, or leave it out"))
    mask = mask.bool()
    wrong = ~mask[:, -1] | (mask[:, :-1] & ~mask[:, 1:]).any(-1)  # (B,)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0, 0])
        bits = "".join("1" if real else "0" for real in mask[row].tolist())
        what = "no real token" if "1" not in bits else "padding after a real token"
        fix = "pad on the left: the next token follows the last column" if "1" in bits else "give the row a token"
        found = f"row {row} = {bits if len(bits) <= 64 else bits[:30] + '...' + bits[-30:]}, {what}"
        raise GenerationError(Problem("attention_mask", found, "each row is 0...01...1", fix))
    return mask


def read_eos(eos: int | Iterable[int] | None, pad: int, n_tokens: int, vocab_size: int) -> tuple[int, ...]:
    """The ids that end a row, () for none; raises `GenerationError` for an `eos` never emitted, a `pad` never read."""
    ids = () if eos is None else tuple(eos) if isinstance(eos, Iterable) else (eos,)
    limits = {"eos": n_tokens, "pad": vocab_size}
    fixes = {"eos": "an id that the model can emit, or None never to stop", "pad": "the tokenizer's pad id"}
    named = [*(("eos", i) for i in ids), ("pad", pad)]
    problems = [
        Problem(n, repr(i), f"0 <= id <= {limits[n] - 1}", fixes[n])
        for n, i in named
        if not (_whole(i) and 0 <= i < limits[n])
    ]
    if problems:
        raise GenerationError(*problems)
    return ids


def check_length(prompt: int, max_new_tokens: int, deploy_length: int) -> None:
    """Raises `GenerationError` unless max_new_tokens >= 1 and prompt + max_new_tokens <= deploy_length."""
    if not _whole(max_new_tokens) or max_new_tokens < 1:
        raise GenerationError(Problem("max_new_tokens", repr(max_new_tokens), "a whole number >= 1", "1 or more"))
    total = prompt + max_new_tokens
    if total > deploy_length:
        room = deploy_length - prompt
        shorter = f"max_new_tokens={room} or less" if room > 0 else f"a prompt of at most {deploy_length - 1} tokens"
        found = f"prompt {prompt} + max_new_tokens {max_new_tokens} = {total} tokens"
        rule = f"prompt and answer together within model.deploy_length = {deploy_length}"
        raise GenerationError(
            Problem("max_new_tokens", found, rule, f"{shorter}, or a model built with model.deploy_length={total}")
        )


def read_state(state: Any, tokens: Tensor, max_new_tokens: int) -> int:
    """How many tokens a given state holds; raises `GenerationError` when its rows or its room don't fit tokens."""
    (batch, length), rows, used = tokens.shape, state.rows, state.length
    needed = used + length + max_new_tokens
    problems = []
    if rows not in (1, batch):
        rule = f"a row for each of the {batch} prompts, or one for all of them"
        problems.append(Problem("state", f"{rows} rows", rule, "state.expand(n) where each row has n prompts"))
    if needed > state.max_length:
        found = f"room for {state.max_length} tokens"
        rule = f"{used} in it + prompt {length} + max_new_tokens {max_new_tokens} = {needed}"
        problems.append(Problem("state", found, rule, f"model.new_state({rows}, {needed}), read anew, or fewer tokens"))
    if problems:
        raise GenerationError(*problems)
    return used


def check_draft(model: Any, draft: Any, count: int, tokens: Tensor, max_new_tokens: int, state: Any) -> None:
    """Raises `GenerationError` unless `draft` can propose what `model` may say behind tokens (B, T)."""
    problems = []
    kinds = [getattr(getattr(each, "spec", None), "kind", "decoder") for each in (model, draft)]
    if kinds != ["decoder", "decoder"]:
        rule = "a decoder proposes to a decoder: none of them reads a source"
        raise GenerationError(Problem("draft", f"of kind {kinds[1]} to {kinds[0]}", rule, "draft=None"))
    if not _whole(count) or count < 1:
        problems.append(Problem("draft_tokens", repr(count), "a whole number >= 1", "4; more where most are accepted"))
    ours, theirs = (model.n_tokens, model.vocab_size), (draft.n_tokens, draft.vocab_size)
    if ours != theirs:
        found = f"a draft of {theirs[0]} tokens in {theirs[1]} rows"
        rule = f"the model's own vocabulary: {ours[0]} tokens in {ours[1]} rows"
        problems.append(Problem("draft", found, rule, "a draft trained with the same tokenizer and model.vocab_size"))
    places = [next(each.parameters()).device for each in (model, draft)]
    if places[0] != places[1]:
        problems.append(Problem("draft", f"on {places[1]}", f"where the model is: {places[0]}", "draft.to(device)"))
    total = tokens.shape[1] + max_new_tokens
    if total > draft.deploy_length:
        found = f"a draft with model.deploy_length = {draft.deploy_length}"
        rule = f"prompt {tokens.shape[1]} + max_new_tokens {max_new_tokens} = {total} tokens, which it reads too"
        problems.append(
            Problem("draft", found, rule, f"a draft built with model.deploy_length={total}, or fewer tokens")
        )
    if state is not None:
        rule = "a draft reads what the model reads, and has not read what the state holds"
        problems.append(Problem("draft", "beside a state", rule, "draft=None, or the whole prompt without a state"))
    if problems:
        raise GenerationError(*problems)


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def read_beside(
    model: Any, tokens: Tensor, mask: Tensor | None, state: Any, source: Tensor | None, source_mask: Tensor | None
) -> dict[str, Tensor]:
    """What the model is given beside its prompt, by argument: a source, or that the prompt is a prefix.

    Raises `GenerationError` for a source that there is no use for, or that is missing or doesn't fit, and for a model
    that writes nothing. A model that describes itself by no spec is one that needs nothing.
    """
    spec = getattr(model, "spec", None)
    kind = getattr(spec, "kind", "decoder")
    if kind == "encoder":
        fix = "recipes.generate fills masks with it; a decoder or an encoder_decoder writes"
        raise GenerationError(Problem("model", "an encoder", "a model that sees what was written so far alone", fix))
    if kind == "decoder":
        refuse_source(source, "model")
        return {"prefix": torch.ones_like(tokens).bool() if mask is None else mask} if _prefixed(spec) else {}
    if source is None:
        if state is None or state.source is None or state.source.positions is None:
            fix = "source=torch.tensor([ids]), and tokens that begin the target"
            raise GenerationError(Problem("source", "None", "an encoder_decoder reads one", fix))
        return {}
    if state is not None and state.source is not None and state.source.positions is not None:
        rule = "a state holds one source, which its layers have read"
        raise GenerationError(Problem("source", "given beside a state that has one", rule, "leave one of them out"))
    rule = f"integer ids (B, S), S from 1 to {model.deploy_length}, a row for each of the {len(tokens)} of tokens"
    if not isinstance(source, Tensor):
        raise GenerationError(Problem("source", f"a {type(source).__name__}", rule, "torch.tensor(source)"))
    found = tuple(source.shape)
    fits = source.ndim == 2 and len(source) == len(tokens) and 0 < source.shape[-1] <= model.deploy_length
    if not fits or source.dtype not in (torch.int64, torch.int32):
        raise GenerationError(Problem("source", f"shape {found}, {source.dtype}", rule, "pad or cut them"))
    if not 0 <= int(source.min()) <= int(source.max()) < model.vocab_size:
        rule = f"0 <= id <= {model.vocab_size - 1}"
        raise GenerationError(
            Problem("source", f"ids {int(source.min())} to {int(source.max())}", rule, "its tokenizer")
        )
    if source_mask is not None and source_mask.shape != source.shape:
        rule = f"bool of the source's shape {found}, true where a real token stands"
        raise GenerationError(Problem("source_mask", f"shape {tuple(source_mask.shape)}", rule, "source != pad"))
    if source_mask is not None and not bool(source_mask.bool().any(-1).all()):
        rule = "each row of the source has a real token"
        raise GenerationError(Problem("source_mask", "a row of padding alone", rule, "leave the row out"))
    told = {"source": source.long()}
    return told if source_mask is None else told | {"source_mask": source_mask.bool()}


def refuse_source(source: Tensor | None, beside: str) -> None:
    """Raises `GenerationError` when there is a source, which what is called `beside` doesn't go with."""
    if source is not None:
        found = f"shape {tuple(source.shape)}, beside the argument {beside}"
        raise GenerationError(Problem("source", found, f"this {beside} reads no source", "leave one of them out"))


def refuse_draft(draft: Any) -> None:
    """Raises `GenerationError` when there is a draft beside a compiled step: it has the model read several tokens."""
    if draft is not None:
        rule = "what is compiled reads a token a step, and behind a draft the model reads several"
        raise GenerationError(Problem("compile", "true, beside the argument draft", rule, "compile=false, or no draft"))


def _prefixed(spec: Any) -> bool:
    return bool(getattr(spec, "prefix", False))

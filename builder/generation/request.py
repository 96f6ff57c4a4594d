"""What a call of `generate` asks for, read and refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ArchlabError, Problem
from .found import ids, marks, told, whole


class GenerationError(ArchlabError, ValueError):
    """A call of `generate` that cannot be served; the text lists every problem found, by argument."""

    def __init__(self, *problems: Problem):
        self.problems = problems
        super().__init__("\n".join(map(str, problems)))


_GENERATIVE = ("deploy_length", "n_tokens", "vocab_size", "new_state")


def check_model(path: str, model: Any) -> None:
    """Raises `GenerationError` unless what is given at `path` is a model that can write, and has its weights."""
    rule = "a model with its weights, as build(spec.model) and load_run(path).model give it"
    if not isinstance(model, nn.Module) or not all(hasattr(model, name) for name in _GENERATIVE):
        raise GenerationError(Problem(path, told(model), rule, f"{path}=load_run(path).model"))
    if any(parameter.is_meta for parameter in model.parameters()):
        raise GenerationError(Problem(path, f"{told(model)} on the meta device", rule, 'build(..., device="cpu")'))
    gives = getattr(getattr(model, "head", None), "gives", "tokens")
    if _kind(model) == "encoder" or gives != "tokens":
        found = "an encoder" if _kind(model) == "encoder" else f"a model whose head gives {gives.replace('_', ' ')}"
        rule = "a model that gives tokens, and sees what was written so far alone"
        fix = "recipes.generate, which asks it what it can say; a decoder or an encoder_decoder writes"
        raise GenerationError(Problem(path, found, rule, fix))


def _kind(model: Any) -> str:
    """Of which kind a model is; one that describes itself by no spec needs nothing beside its prompt."""
    return getattr(getattr(model, "spec", None), "kind", "decoder")


def check_call(seed: Any, on_token: Any, compile: Any) -> None:
    """Raises `GenerationError` for a seed, a callback or a switch that is none."""
    low, high = -(2**63), 2**64 - 1  # what torch takes
    checks = [
        (
            "seed",
            seed,
            seed is None or (whole(seed) and low <= seed <= high),
            "a whole number, -2**63 to 2**64 - 1",
            "0",
        ),
        ("on_token", on_token, on_token is None or callable(on_token), "a function on_token(step, ids)", "None"),
        ("compile", compile, isinstance(compile, bool), "true or false", "false"),
    ]
    problems = [Problem(name, told(given), rule, fix) for name, given, fine, rule, fix in checks if not fine]
    if problems:
        raise GenerationError(*problems)


def read_prompt(tokens: Tensor, attention_mask: Tensor | None, vocab_size: int) -> tuple[Tensor, Tensor | None]:
    """The prompt as int64 (B, T) and its mask as bool (B, T), None where nothing is padded.

    Columns that are padding in every row are cut off, so T is the longest row. Raises `GenerationError` for a wrong
    shape or type, an empty prompt, an id outside 0..vocab_size-1, and for a mask row that is not 0...01...1.
    """
    if not ids(tokens):
        fix = "torch.tensor([ids]) for one prompt"
        raise GenerationError(Problem("tokens", told(tokens), "a tensor of integer ids (B, T)", fix))
    if tokens.numel() == 0:
        fix = "give each row at least one token, such as the tokenizer's BOS"
        raise GenerationError(Problem("tokens", f"an empty prompt {tuple(tokens.shape)}", "B >= 1, T >= 1", fix))
    tokens = tokens.long()
    fix = f"encode with the model's own tokenizer (model.vocab_size = {vocab_size}); padding too needs a valid id"
    _check_ids("tokens", tokens, vocab_size, fix)
    if attention_mask is None:
        return tokens, None
    mask = _read_mask(attention_mask, tokens)
    longest = int(mask.sum(-1).max())
    tokens, mask = tokens[:, -longest:], mask[:, -longest:]
    return tokens, None if bool(mask.all()) else mask


def _check_ids(path: str, given: Tensor, vocab_size: int, fix: str) -> None:
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= vocab_size:
        raise GenerationError(Problem(path, f"id {low if low < 0 else high}", f"0 <= id <= {vocab_size - 1}", fix))


def _read_mask(mask: Tensor, tokens: Tensor) -> Tensor:
    if not marks(mask, tokens.shape):
        rule = f"a tensor of bool of the tokens' shape {tuple(tokens.shape)}, true where a real token stands"
        raise GenerationError(Problem("attention_mask", told(mask), rule, "tokens != pad, or leave it out"))
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


def read_ends(
    eos: int | Iterable[int] | Tensor | None, pad: Any, n_tokens: int, vocab_size: int
) -> tuple[tuple[int, ...], int]:
    """The ids that end a row, () for none, and the one behind an end; raises `GenerationError` for an `eos` that is
    never emitted, a `pad` that is never read. A tensor of ids is as good as its numbers."""
    given, pad = _plain(eos, dims=1), _plain(pad, dims=0)
    several = isinstance(given, Iterable) and not isinstance(given, str | Tensor | nn.Module)
    listed: Iterable[Any] = () if given is None else given if several else (given,)
    ends = tuple(_plain(each, dims=0) for each in listed)
    limits = {"eos": n_tokens, "pad": vocab_size}
    fixes = {"eos": "an id that the model can emit, or None never to stop", "pad": "the tokenizer's pad id"}
    named = [*(("eos", each) for each in ends), ("pad", pad)]
    problems = [
        Problem(name, told(each), f"an id, 0 <= id <= {limits[name] - 1}", fixes[name])
        for name, each in named
        if not (whole(each) and 0 <= each < limits[name])
    ]
    if problems:
        raise GenerationError(*problems)
    return ends, pad


def _plain(given: Any, dims: int) -> Any:
    """The numbers of a tensor or an array of so many dimensions at most; anything else as it is."""
    return given.tolist() if hasattr(given, "tolist") and given.ndim <= dims else given


def check_length(prompt: int, max_new_tokens: int, deploy_length: int) -> None:
    """Raises `GenerationError` unless max_new_tokens >= 1 and prompt + max_new_tokens <= deploy_length."""
    if not whole(max_new_tokens) or max_new_tokens < 1:
        raise GenerationError(Problem("max_new_tokens", told(max_new_tokens), "a whole number >= 1", "1 or more"))
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
    """How many tokens a given state holds; raises `GenerationError` when it is none, or its rows or its room don't fit
    tokens."""
    if not all(hasattr(state, name) for name in ("rows", "length", "max_length", "expand")):
        rule = "what model.new_state(rows, length) gave, and the model has read"
        raise GenerationError(Problem("state", told(state), rule, "state=model.new_state(...), or None"))
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
    kinds = [_kind(each) for each in (model, draft)]
    if kinds != ["decoder", "decoder"]:
        rule = "a decoder proposes to a decoder: none of them reads a source"
        raise GenerationError(Problem("draft", f"of kind {kinds[1]} to {kinds[0]}", rule, "draft=None"))
    if not whole(count) or count < 1:
        problems.append(Problem("draft_tokens", told(count), "a whole number >= 1", "4; more where most are accepted"))
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


def read_beside(
    model: Any, tokens: Tensor, mask: Tensor | None, state: Any, source: Tensor | None, source_mask: Tensor | None
) -> dict[str, Tensor]:
    """What the model is given beside its prompt, by argument: a source, or that the prompt is a prefix.

    Raises `GenerationError` for a source that there is no use for, or that is missing or doesn't fit.
    """
    kind = _kind(model)
    if kind == "decoder":
        if source is not None:
            rule = "this model reads no source: it is a decoder"
            raise GenerationError(Problem("source", told(source), rule, "source=None, or an encoder_decoder"))
        _refuse_mask_alone(source_mask)
        return {"prefix": torch.ones_like(tokens).bool() if mask is None else mask} if _prefixed(model) else {}
    if source is None:
        if state is None or state.source is None or state.source.positions is None:
            fix = "source=torch.tensor([ids]), and tokens that begin the target"
            raise GenerationError(Problem("source", "None", "an encoder_decoder reads one", fix))
        _refuse_mask_alone(source_mask)
        return {}
    if state is not None and state.source is not None and state.source.positions is not None:
        rule = "a state holds one source, which its layers have read"
        raise GenerationError(Problem("source", "given beside a state that has one", rule, "leave one of them out"))
    rule = f"integer ids (B, S), S from 1 to {model.deploy_length}, a row for each of the {len(tokens)} of tokens"
    if not isinstance(source, Tensor):
        raise GenerationError(Problem("source", told(source), rule, "torch.tensor(source)"))
    if not ids(source) or len(source) != len(tokens) or not 0 < source.shape[-1] <= model.deploy_length:
        raise GenerationError(Problem("source", told(source), rule, "pad or cut them"))
    source = source.long()
    _check_ids("source", source, model.vocab_size, "its tokenizer")
    if source_mask is not None and not marks(source_mask, source.shape):
        rule = f"a tensor of bool of the source's shape {tuple(source.shape)}, true where a real token stands"
        raise GenerationError(Problem("source_mask", told(source_mask), rule, "source != pad"))
    if source_mask is not None and not bool(source_mask.bool().any(-1).all()):
        rule = "each row of the source has a real token"
        raise GenerationError(Problem("source_mask", "a row of padding alone", rule, "leave the row out"))
    given = {"source": source}
    return given if source_mask is None else given | {"source_mask": source_mask.bool()}


def _refuse_mask_alone(source_mask: Any) -> None:
    if source_mask is not None:
        rule = "nothing reads it without a source"
        raise GenerationError(Problem("source_mask", told(source_mask), rule, "source_mask=None"))


def _prefixed(model: Any) -> bool:
    return bool(getattr(getattr(model, "spec", None), "prefix", False))

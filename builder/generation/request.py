"""What a call of `generate` asks for, read and refused before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

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


def _whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)

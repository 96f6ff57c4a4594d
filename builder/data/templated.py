"""A tokenizer with the chat template of its run beside it: what they make of conversations and of a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, Problem
from ..whole import write_whole
from .chat import BadTemplate, Chat, Messages, Piece
from .tokenizer import Tokenizer
from .tokenizer._json import read_beside

_FILE = "tokenizer_config.json"
"""What transformers call the file beside a tokenizer.json that holds its template."""


@dataclass(frozen=True)
class Question:
    """The ids behind which an answer begins, and those that end it."""

    ids: list[int]
    ends: tuple[int, ...]


def with_chat(tokenizer: Tokenizer, chat: Chat | None) -> Tokenizer:
    """The same tokenizer with a template beside it, or None: with none."""
    if chat == tokenizer.chat:
        return tokenizer
    made = copy(tokenizer)
    made.chat = chat
    return made


def encoded(tokenizer: Tokenizer, pieces: Iterable[Piece]) -> tuple[list[int], list[bool]]:
    """The ids of pieces and which of them are counted; `bos` begins them once, where the tokenizer has one."""
    ids: list[int] = []
    marks: list[bool] = []
    for piece in pieces:
        more = tokenizer.encode(piece.text) if piece.token is None else [tokenizer.specials[piece.token]]
        ids += more
        marks += [piece.counted] * len(more)
    if tokenizer.bos is not None:  # whether the template writes it or not
        written = next((place for place, id in enumerate(ids) if id != tokenizer.bos), len(ids))
        ids, marks = [tokenizer.bos, *ids[written:]], [False, *marks[written:]]
    return ids, marks


def question(tokenizer: Tokenizer, prompt: str, before: Messages = ()) -> Question:
    """What a decoder is given of a prompt: a message of the user behind those `before`, as the template writes them
    before an answer; without a template the text as it stands, and an empty one begins a document.

    Raises ConfigError for messages that the template can't write.
    """
    chat, eos = tokenizer.chat, tokenizer.eos
    if chat is None:
        return Question(tokenizer.begun(tokenizer.encode(prompt)) or [eos], (eos,))
    messages = [*before, {"role": "user", "content": prompt}]
    try:
        pieces, end = chat.question(messages)
    except BadTemplate as error:
        found = f"messages of {', '.join(message['role'] for message in messages)}"
        rule = f"the run's chat template writes such conversations, and it says: {error}"
        fix = "messages=[{role: system, content: ...}] before the prompt, as the data has them"
        raise ConfigError([Problem("prompt", found, rule, fix)]) from None
    ends = {eos} if end is None else {eos, tokenizer.specials[end]}
    return Question(encoded(tokenizer, pieces)[0], tuple(ends))


def keep(tokenizer: Tokenizer, folder: Path) -> None:
    """Writes the template beside a tokenizer to a run folder, as transformers do; nothing where there is none."""
    if (chat := tokenizer.chat) is not None:
        told = {"chat_template": chat.template, **chat.names}
        write_whole(folder / _FILE, json.dumps(told, indent=2, ensure_ascii=False) + "\n")


def restored(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """The tokenizer of a run folder with the template that `keep` wrote there, where it did."""
    told = read_beside(folder / "tokenizer.json")
    if (template := told.pop("chat_template", None)) is None:
        return tokenizer
    return with_chat(tokenizer, Chat(template, told, [*tokenizer.specials]))

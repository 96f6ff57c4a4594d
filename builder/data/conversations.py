"""From a list of conversations to a corpus of text in which only answers are counted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import ConfigError, Problem
from .chat import DEFAULT, BadTemplate, Chat, Messages
from .corpus import Corpus, opening
from .digest import digest
from .records import fitted, refuse_longer, split_records
from .samples import Samples, Shape
from .samples.answers import Answers
from .samples.documents import Documents
from .samples.padded import Texts
from .templated import encoded, with_chat
from .texts import refuse_padding
from .tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")
_LAYOUTS: dict[str, Any] = {"padded": Texts, "documents": Documents}


def conversation_corpus(
    conversations: Sequence[Messages], config: Any, tokenizer_config: Any, shape: Shape, cache: Path
) -> Corpus:
    """Conversations as the chat template writes them, each a document; the tokens of answers are `counted`.

    One begins with `bos` once, where the tokenizer has one, and ends in `eos`. An answer is encoded apart from what
    stands before it, as generation meets it; its end is counted too. Conversations that begin alike, up to the first
    answer, are held out together. The tokenizer of the corpus has the template beside it. Raises ConfigError where the
    template is at fault, or as records do.
    """
    records = [(_prompt(messages), json.dumps(messages)) for messages in conversations]
    halves = [[json.loads(said) for _, said in half] for half in split_records(records, config.val_fraction)]
    contents = [message["content"] for messages in halves[0] for message in messages]
    tokenizer: Tokenizer = tokenizer_config.component.prepare(tokenizer_config, contents, cache)
    chat = _chat(config, tokenizer_config, tokenizer)
    read = [_encoded(half, chat, tokenizer) for half in halves]
    refuse_padding(tokenizer, *(ids for side in read for ids in side[0]))
    if config.overlong == "refuse":
        lengths = torch.tensor([len(ids) for side in read for ids in side[0]])
        refuse_longer(lengths, [_prompt(messages) for half in halves for messages in half], shape.length)
    for _, counted in read if config.overlong == "truncate" else ():
        _refuse_no_answer(counted, shape.length)
    sides = [fitted(*side, drop=config.overlong == "drop", length=shape.length) for side in read]
    layout = _LAYOUTS[config.packing or "padded"]
    samples: list[Samples] = [Answers(*(layout(part, shape, tokenizer) for part in side)) for side in sides]
    told = [chat.template, json.dumps(dict(chat.names), sort_keys=True)]
    mark = digest([tokenizer.fingerprint, *told, str(len(halves[0])), *map(json.dumps, halves[0] + halves[1])])
    return Corpus(with_chat(tokenizer, chat), samples[0], samples[1], mark, opening=opening(contents))


def _prompt(messages: Messages) -> str:
    """What stands before the first answer."""
    first = [message["role"] for message in messages].index("assistant")
    return "\n".join(message["content"] for message in messages[:first])


def _chat(config: Any, tokenizer_config: Any, tokenizer: Tokenizer) -> Chat:
    tokens = {id: token for token, id in tokenizer.specials.items()}
    beside: dict[str, str] = tokenizer_config.beside
    names = {f"{name}_token": tokens.get(getattr(tokenizer, name), "") for name in ("bos", "eos", "pad")}
    names |= {name: token for name, token in beside.items() if token in tokenizer.specials}
    template = beside.get("chat_template", DEFAULT)
    if config.template is not None:
        try:
            template = Path(config.template).expanduser().read_text("utf-8")
        except (OSError, ValueError) as error:
            found = f"{config.template!r}, which can't be read: {error}"
            raise ConfigError([Problem("data.template", found, "a file with a template", "a path")]) from None
    return Chat(template, names, [*tokenizer.specials])


def _encoded(conversations: Sequence[Messages], chat: Chat, tokenizer: Tokenizer) -> tuple[list[Tensor], list[Tensor]]:
    """The tokens of each conversation, and which are counted."""
    tokens: list[Tensor] = []
    counted: list[Tensor] = []
    for number, messages in enumerate(conversations, 1):
        try:
            ids, marks = encoded(tokenizer, chat.pieces(messages))
        except BadTemplate as error:
            _refuse_template(chat, f"{error} (conversation {number} of its split)")
        if tokenizer.eos not in ids[-2:]:  # some templates write a line break behind it
            ids, marks = [*ids, tokenizer.eos], [*marks, messages[-1]["role"] == "assistant"]
        tokens.append(torch.tensor(ids))
        counted.append(torch.tensor(marks))
    if not any(marks.any() for marks in counted):
        _refuse_template(chat, "it shows none of the answers, so that there is nothing to learn")
    return tokens, counted


def _refuse_no_answer(counted: Sequence[Tensor], length: int) -> None:
    """Raises ConfigError where none of the tokens that count stands before the place where rows are cut off."""
    if not any(bool(marks[:length].any()) for marks in counted):
        least = 1 + min(int(marks.nonzero()[0, 0]) for marks in counted if marks.any())
        found = f"truncate, and in all {len(counted)} conversations of a split the answer begins behind token {length}"
        rule = "what is left of some conversation holds a part of its answer"
        fix = f"model.train_length={least} or more"
        raise ConfigError([Problem("data.overlong", found, rule, fix)])


def _refuse_template(chat: Chat, found: str) -> NoReturn:
    start = chat.template[:60].replace("\n", " ")
    rule = "a Jinja chat template as Hugging Face's are"
    raise ConfigError([Problem("data.template", f"{start!r}...: {found}", rule, "data.template=<a file>, mended")])

"""Records in files of one's own or of the hub: JSON lines, CSV, Parquet or text, with columns that are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self

from pydantic import Field, model_validator

from ...component import refuse
from ...errors import ConfigError, Problem
from ...registry import register
from ..conversations import ROLES, conversation_corpus
from ..corpus import Corpus
from ..records import Overlong, record_corpus
from ..samples import Shape
from ..split import Split
from ..tables import hub_table, local_tables
from ..tagged import tagged_corpus
from ..texts import Packing, text_corpus
from . import HoldsOut, Source


@register("data", "files")
class Files(Source):
    """The rows of files, in the order of their paths and of what stands in them; no value of a row may be missing.

    text         documents
    pairs        a source and its target
    labelled     a text and its label
    contrastive  two texts that belong together
    tagged       a list of words, and one of a tag for each
    chat         conversations, lists of {role, content}: text of which the answers are counted (data/conversations)
    """

    kinds = ("text", "pairs", "labelled", "contrastive", "tagged")

    class Config(HoldsOut):
        """Where the rows are, what they hold, and how they are laid out.

        path      a .jsonl, .json, .csv, .tsv, .parquet or .txt file (a row a line), a folder of them, or a glob; never
                  asks a network
        hub       in place of `path`, the name of a dataset on the Hugging Face hub; of its `subset` (null: the only
                  one) the rows of `part`
        form      what a row is; `columns` names its columns, null: text; source, target; text, label; text, other;
                  words, tags; messages
        split     of text, as of any text source
        packing   of text and chat, as of any text source; null: stream for text, padded for chat, which is never stream
        overlong  of all but text: what becomes of rows longer than model.train_length
        template  of chat, the path of a Jinja chat template; null: the tokenizer's own, or else the built-in one
        """

        path: str | None = Field(default=None, min_length=1)
        hub: str | None = Field(default=None, min_length=1)
        subset: str | None = None
        part: str = "train"
        form: Literal["text", "pairs", "labelled", "contrastive", "tagged", "chat"] = "text"
        columns: Annotated[tuple[str, ...], Field(strict=False)] | None = None
        split: Split = "documents"
        packing: Packing | None = None
        overlong: Overlong = "refuse"
        template: str | None = None

        @property
        def kind(self) -> str:
            return _FORMS[self.form].kind

        @property
        def named(self) -> tuple[str, ...]:
            """The columns that are read."""
            return self.columns or _FORMS[self.form].columns

        @model_validator(mode="after")
        def _whole(self) -> Self:
            if (self.path is None) == (self.hub is None):
                fix = "data.hub=null, or data.path=null" if self.path else "data.path=..., or data.hub=..."
                refuse("path", self.path, "one source: local files, or a dataset of the hub", fix)
            form = _FORMS[self.form]
            if self.columns is not None and len(self.columns) != len(form.columns):
                rule = f"{len(form.columns)} for {self.form}: {', '.join(form.columns)}"
                refuse("columns", self.columns, rule, f"data.columns=[{', '.join(form.columns)}]")
            for key, unset in _UNSET.items():
                if (value := getattr(self, key)) != unset and key not in form.knobs:
                    refuse(key, value, f"data.form={self.form} has no such choice", f"leave data.{key} out")
            if self.packing == "stream" and "template" in form.knobs:
                rule = "no window may begin in the middle of a conversation"
                refuse("packing", self.packing, rule, "data.packing=padded or documents")
            return self

    config: Config

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        config = self.config
        if config.hub is not None:
            tables = [hub_table(config.hub, config.subset, config.part, cache / "datasets")]
        else:
            tables = local_tables(str(config.path), cache)
        form = _FORMS[config.form]
        rows = [
            tuple(read(value, where, name) for read, value, name in zip(form.readers, row, config.named, strict=True))
            for table in tables
            for where, row in table.rows(config.named)
        ]
        if not any(any(row) for row in rows):
            found = f"{config.path or config.hub!r}, which holds no rows with text"
            raise ConfigError([Problem("data.path", found, "at least two rows", "the path of real data")])
        return form.corpus(rows, config, tokenizer, shape, cache)


def _wrong(where: str, column: str, found: str, rule: str) -> NoReturn:
    raise ConfigError([Problem("data.path", f"{where}: {column!r} holds {found}", rule, "mend the row")])


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text[:60]}{'...' if len(text) > 60 else ''} ({type(value).__name__})"


def _document(value: Any, where: str, column: str) -> str:
    return value if isinstance(value, str) else _wrong(where, column, _shown(value), "a text")


def _said(value: Any, where: str, column: str) -> str:
    return (
        value if isinstance(value, str) and value else _wrong(where, column, _shown(value), "a text that isn't empty")
    )


def _label(value: Any, where: str, column: str) -> str:
    fits = isinstance(value, str | int) and value != ""
    return str(value) if fits else _wrong(where, column, _shown(value), "a label: a text or a whole number")


def _words(value: Any, where: str, column: str) -> list[str]:
    fits = isinstance(value, list) and value and all(isinstance(word, str | int) and word != "" for word in value)
    return (
        [str(word) for word in value] if fits else _wrong(where, column, _shown(value), "a list of texts, none empty")
    )


def _messages(value: Any, where: str, column: str) -> list[dict[str, str]]:
    rule = f"a list of {{role, content}}, roles {', '.join(ROLES)}, with at least one answer of the assistant"
    if not isinstance(value, list):
        _wrong(where, column, _shown(value), rule)
    for number, message in enumerate(value, 1):
        told = message if isinstance(message, dict) else {}
        if told.get("role") not in ROLES or not isinstance(told.get("content"), str):
            _wrong(where, column, f"as message {number} {_shown(message)}", rule)
    if all(message["role"] != "assistant" for message in value):
        _wrong(where, column, f"{len(value)} messages without an answer", rule)
    return [{"role": message["role"], "content": message["content"]} for message in value]


def _texts(rows: list[Any], config: Any, *rest: Any) -> Corpus:
    laid = config.model_copy(update={"packing": config.packing or "stream"})
    return text_corpus([text for (text,) in rows], laid, *rest)


def _conversations(rows: list[Any], config: Any, *rest: Any) -> Corpus:
    return conversation_corpus([messages for (messages,) in rows], config, *rest)


@dataclass(frozen=True)
class _Form:
    """What a row may be: the kind of data, its columns with what reads each, the knobs that only some forms have."""

    kind: str
    columns: tuple[str, ...]
    readers: tuple[Callable[[Any, str, str], Any], ...]
    corpus: Callable[..., Corpus]
    knobs: tuple[str, ...]


_FORMS = {
    "text": _Form("text", ("text",), (_document,), _texts, ("split", "packing")),
    "pairs": _Form("pairs", ("source", "target"), (_said, _said), record_corpus, ("overlong",)),
    "labelled": _Form("labelled", ("text", "label"), (_said, _label), record_corpus, ("overlong",)),
    "contrastive": _Form("contrastive", ("text", "other"), (_said, _said), record_corpus, ("overlong",)),
    "tagged": _Form("tagged", ("words", "tags"), (_words, _words), tagged_corpus, ("overlong",)),
    "chat": _Form("text", ("messages",), (_messages,), _conversations, ("packing", "overlong", "template")),
}
_UNSET = {"split": "documents", "packing": None, "overlong": "refuse", "template": None}

"""The room of tokenizers: text to ids and back, known by their size before any text is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import torch
from pydantic import Field

from ... import component
from ...errors import ArchlabError
from ..stream import StreamDecoder

if TYPE_CHECKING:
    from ..chat import Chat


class Unspeakable(ArchlabError):
    """A text that a tokenizer has no ids for."""


class Tokenizer(component.Component, ABC):
    """Text to ids and back. Made by `prepare` (which trains where there is something to train) or by `load`.

    Ids are 0 to len - 1. No text encodes to a special id, and special ids decode to "". `eos` ends a document; `bos`
    begins a text, where there is such an id; `pad` fills rows and is never a target. `specials` maps the token of each
    special id to it; all are distinct. `named` maps what a special token is for, as Config.specials says, to its id.
    `fingerprint` is a hash of what the tokenizer is: equal fingerprints encode alike. `chat` is the template of a run
    on conversations, which stands beside it (`templated.with_chat`).
    """

    class Config(component.Config):
        """`specials`: special tokens beside `eos` and `pad`, by what they are for, such as `mask`; an objective that
        needs some adds them. Where the tokenizer has no such token, it is added behind all others."""

        specials: Annotated[tuple[str, ...], Field(strict=False)] = ()

        @property
        def own(self) -> int:
            """The number of ids without `specials`."""
            raise NotImplementedError

        @property
        def size(self) -> int:
            """The number of ids it declares, known without any text; the tokenizer itself has no more than that."""
            return self.own + len(self.specials)

        @property
        def beside(self) -> dict[str, str]:
            """What comes with it for conversations: `chat_template`, and special tokens by name, as `eos_token`."""
            return {}

    eos: int
    pad: int
    bos: int | None = None
    specials: dict[str, int]
    named: dict[str, int]
    fingerprint: str
    chat: Chat | None = None

    @property
    def start(self) -> int:
        """The id that stands before a text which is written from a source: `bos`, or `eos` where there is none."""
        return self.eos if self.bos is None else self.bos

    def begun(self, ids: Sequence[int]) -> list[int]:
        """These ids behind `bos`, where there is one."""
        return [*ids] if self.bos is None else [self.bos, *ids]

    def whole(self, text: str) -> list[int]:
        """The ids of a text as it stands in the data: behind `bos`, where there is one, and followed by `eos`."""
        return [*self.begun(self.encode(text)), self.eos]

    @classmethod
    @abstractmethod
    def prepare(cls, config: Any, texts: Sequence[str], cache: Path) -> Self:
        """The tokenizer for `config`, trained on `texts` if it is one that trains; `cache` keeps what training made."""

    @classmethod
    @abstractmethod
    def load(cls, config: Any, folder: Path) -> Self:
        """The tokenizer that `save` wrote to `folder`, with neither corpus nor cache. Raises ArchlabError."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Writes to `folder` what `load` needs."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any special id; raises Unspeakable where there are none."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids give nothing, bytes that are no character give U+FFFD."""

    @abstractmethod
    def __len__(self) -> int:
        """One more than the largest id there is."""

    def encode_corpus(self, texts: Sequence[str]) -> torch.Tensor:
        """All texts as one row, each `whole`: (N,) int64."""
        return torch.tensor([id for text in texts for id in self.whole(text)], dtype=torch.int64)

    def trials(self) -> Sequence[str] | None:
        """Texts that must come back as they are, of one that takes no other kind; None: it takes any text."""
        return None

    def stream(self) -> StreamDecoder:
        """A decoder for ids that arrive one at a time."""
        return StreamDecoder(self.decode)


def appended(names: Sequence[str], first: int) -> tuple[dict[str, int], dict[str, int]]:
    """Special tokens with the ids from `first` on: (`named`, and their part of `specials`, `<mask>` for `mask`)."""
    named = {name: first + place for place, name in enumerate(names)}
    return named, {f"<{name}>": id for name, id in named.items()}

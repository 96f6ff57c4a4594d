"""The room of tokenizers: text to ids and back, known by their size before any text is read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch

from ... import component
from ..stream import StreamDecoder


class Tokenizer(component.Component, ABC):
    """Text to ids and back. Made by `prepare` (which trains where there is something to train) or by `load`.

    Ids are 0 to len - 1. No text encodes to a special id, and special ids decode to "". `eos` ends a document; `pad`
    fills rows and is never a target. `specials` maps the name of each special id to it; all are distinct. `fingerprint`
    is a hash of what the tokenizer is: equal fingerprints encode alike.
    """

    class Config(component.Config):
        """The knobs of a tokenizer."""

        @property
        def size(self) -> int:
            """The number of ids it declares, known without any text; the tokenizer itself has no more than that."""
            raise NotImplementedError

    eos: int
    pad: int
    specials: dict[str, int]
    fingerprint: str

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
        """The ids of a text, without any special id."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; special ids give nothing, bytes that are no character give U+FFFD."""

    @abstractmethod
    def __len__(self) -> int:
        """One more than the largest id there is."""

    def encode_corpus(self, texts: Sequence[str]) -> torch.Tensor:
        """All texts as one row, each followed by `eos`: (N,) int64."""
        return torch.tensor([id for text in texts for id in (*self.encode(text), self.eos)], dtype=torch.int64)

    def stream(self) -> StreamDecoder:
        """A decoder for ids that arrive one at a time."""
        return StreamDecoder(self.decode)

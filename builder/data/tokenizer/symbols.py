"""Numbers as ids: the text "17 4 9" for tasks whose symbols mean nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from ...registry import register
from ..digest import digest
from . import Tokenizer, Unspeakable, appended

MARK = ">"
"""What stands before an answer, as text."""


class UnknownSymbol(Unspeakable):
    """A text that holds something besides the symbols there are."""


@register("tokenizer", "symbols")
class Symbols(Tokenizer):
    """Ids 0 to n - 1 are the numbers, n ends a text, n + 1 pads, n + 2 is the mark `>`, behind which an answer stands.

    A text is numbers and marks with white space between: "3 1 2 > 1 2 3".
    """

    class Config(Tokenizer.Config):
        """`n_symbols`: how many numbers there are."""

        n_symbols: int = Field(ge=1)

        @property
        def own(self) -> int:
            return self.n_symbols + 3

    def __init__(self, n_symbols: int, specials: Sequence[str] = ()):
        self.n_symbols = n_symbols
        self.eos, self.pad, self._mark = n_symbols, n_symbols + 1, n_symbols + 2
        self.named, added = appended(specials, n_symbols + 3)
        self.specials = {"<eos>": self.eos, "<pad>": self.pad} | added
        self.fingerprint = digest(["symbols", str(n_symbols), *specials])

    @classmethod
    def prepare(cls, config: Any, texts: Sequence[str], cache: Path) -> Self:
        return cls(config.n_symbols, config.specials)

    @classmethod
    def load(cls, config: Any, folder: Path) -> Self:
        return cls(config.n_symbols, config.specials)

    def save(self, folder: Path) -> None:
        """Nothing to keep."""

    def encode(self, text: str) -> list[int]:
        """Raises ArchlabError for a text that holds anything but numbers below n_symbols and marks."""
        return [self._id(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        silent = frozenset(self.specials.values())
        return " ".join(MARK if id == self._mark else str(int(id)) for id in ids if int(id) not in silent)

    def trials(self) -> Sequence[str]:
        return ["", MARK, " ".join([*map(str, range(self.n_symbols)), MARK, "0"])]

    def __len__(self) -> int:
        return self.n_symbols + 3 + len(self.named)

    def _id(self, word: str) -> int:
        if word == MARK:
            return self._mark
        if word.isascii() and word.isdigit() and int(word) < self.n_symbols:
            return int(word)
        raise UnknownSymbol(
            f"found {word!r} in a text; the tokenizer symbols knows 0 to {self.n_symbols - 1} and {MARK}, with white "
            f"space between them: write numbers, as in sample.prompt='0 {self.n_symbols - 1} {MARK}'"
        )

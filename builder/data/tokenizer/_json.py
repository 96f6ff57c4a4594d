"""What tokenizers kept in a Hugging Face `tokenizer.json` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers
import torch

from ...errors import ConfigError, Problem
from ...whole import write_whole
from ..digest import digest
from . import Tokenizer

FILE = "tokenizer.json"


def read_json(file: Path, path: str, fix: str) -> tokenizers.Tokenizer:
    """The tokenizer in `file`. Raises ConfigError at config path `path`, with `fix`, if it is missing or damaged."""
    try:
        return tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except OSError as error:
        found = f"{str(file)!r}, which can't be read: {error.strerror or error}"
    except Exception as error:  # the library raises bare Exception for damaged JSON
        found = f"{str(file)!r}, which is no tokenizer.json: {error}"
    raise ConfigError([Problem(path, found, "a tokenizer.json as the tokenizers library writes it", fix)])


class JsonTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library, with the tokens `eos` and `pad`, which it must hold."""

    def __init__(self, backend: tokenizers.Tokenizer, eos: str, pad: str):
        # A file may come with the truncation of the model it was trained for, which would cut documents short unseen.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # "<eos>" written in a text is text
        ids = backend.get_vocab(with_added_tokens=True)
        added = backend.get_added_tokens_decoder()
        self._backend = backend
        self._length = max(ids.values()) + 1
        self.eos, self.pad = ids[eos], ids[pad]
        self.specials = {token.content: id for id, token in added.items() if token.special}
        self.specials |= {eos: self.eos, pad: self.pad}
        self._silent = frozenset(self.specials.values())
        self.fingerprint = digest([backend.to_str(), eos, pad])

    def save(self, folder: Path) -> None:
        """Writes `tokenizer.json`."""
        write_whole(folder / FILE, self._backend.to_str())

    def encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_corpus(self, texts: Sequence[str]) -> torch.Tensor:
        rows = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return torch.cat([torch.tensor([*row.ids, self.eos], dtype=torch.int64) for row in rows])

    def decode(self, ids: Sequence[int]) -> str:
        return self._backend.decode([int(id) for id in ids if int(id) not in self._silent])

    def __len__(self) -> int:
        return self._length

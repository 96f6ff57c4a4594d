"""The 256 bytes of UTF-8 as ids, with nothing to train: every text round-trips."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy
import torch

from ...registry import register
from ..digest import digest
from . import Tokenizer, appended

EOS, PAD, SIZE = 256, 257, 258


@register("tokenizer", "bytes")
class Bytes(Tokenizer):
    """Id = byte for 0 to 255; 256 ends a document, 257 pads, and special tokens asked for follow
    (Xue et al. 2022, "ByT5: Towards a token-free future")."""

    class Config(Tokenizer.Config):
        """No knobs."""

        @property
        def own(self) -> int:
            return SIZE

    eos = EOS
    pad = PAD

    def __init__(self, specials: Sequence[str] = ()):
        self.named, added = appended(specials, SIZE)
        self.specials = {"<eos>": EOS, "<pad>": PAD} | added
        self.fingerprint = digest(["bytes", str(EOS), str(PAD), *specials])

    @classmethod
    def prepare(cls, config: Any, texts: Sequence[str], cache: Path) -> Self:
        return cls(config.specials)

    @classmethod
    def load(cls, config: Any, folder: Path) -> Self:
        return cls(config.specials)

    def save(self, folder: Path) -> None:
        """Nothing to keep."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_corpus(self, texts: Sequence[str]) -> torch.Tensor:
        data = [text.encode() for text in texts]
        ends = numpy.cumsum([len(text) for text in data], dtype=numpy.int64)
        ids = numpy.frombuffer(b"".join(data), dtype=numpy.uint8).astype(numpy.int64)
        return torch.from_numpy(numpy.insert(ids, ends, EOS))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(int(id) for id in ids if id < EOS).decode("utf-8", "replace")

    def __len__(self) -> int:
        return SIZE + len(self.named)

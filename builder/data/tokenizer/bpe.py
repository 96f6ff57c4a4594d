"""Byte-pair encoding over bytes, trained on the training text of the run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import tokenizers
from pydantic import Field
from tokenizers import decoders, models, pre_tokenizers, trainers

from ...errors import ConfigError
from ...registry import register
from ...whole import write_whole
from ..digest import digest
from . import Tokenizer
from ._json import FILE, JsonTokenizer, read_json

EOS, PAD = "<eos>", "<pad>"


@register("tokenizer", "bpe")
class Bpe(JsonTokenizer):
    """Merges the most frequent neighbours until `vocab_size` ids exist or no pair is frequent enough.

    Sennrich et al. 2016, "Neural machine translation of rare words with subword units"; over bytes as in Radford et al.
    2019 (GPT-2), so that every text round-trips.
    """

    class Config(Tokenizer.Config):
        """`vocab_size` ids at most: two specials, the 256 bytes, and the merges of pairs seen `min_frequency` times."""

        vocab_size: int = Field(default=1024, ge=258)
        min_frequency: int = Field(default=2, ge=1)

        @property
        def own(self) -> int:
            return self.vocab_size

    def __init__(self, backend: tokenizers.Tokenizer, specials: Sequence[str] = ()):
        super().__init__(backend, EOS, PAD, specials)

    @classmethod
    def prepare(cls, config: Any, texts: Sequence[str], cache: Path) -> Self:
        """Trains on `texts`, unless `cache` holds the result for the same texts and settings."""
        settings = [tokenizers.__version__, str(config.vocab_size), str(config.min_frequency)]
        file = cache / "bpe" / f"{digest([*settings, *texts])}.json"
        try:
            return cls(read_json(file, "tokenizer", ""), config.specials)
        except (ConfigError, KeyError, ValueError):  # missing, torn, or without its specials: made anew
            made = cls(_train(config, texts))
        try:
            write_whole(file, made._backend.to_str())
        except OSError as error:
            warnings.warn(f"the tokenizer was not cached, so the next run trains it again: {error}", stacklevel=2)
        return cls(made._backend, config.specials)

    @classmethod
    def load(cls, config: Any, folder: Path) -> Self:
        fix = "restore the file in the run folder, or run the training again"
        return cls(read_json(folder / FILE, "tokenizer", fix), config.specials)


def _train(config: Bpe.Config, texts: Sequence[str]) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=[EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),  # bytes that the texts lack are ids all the same
        show_progress=sys.stderr.isatty(),
    )
    backend.train_from_iterator(texts, trainer, length=len(texts))
    return backend

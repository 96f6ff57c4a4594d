"""Text that `recipes.tokenize` has tokenized: shards on disk, which need not fit into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from ...errors import ConfigError, Problem
from ...registry import register
from ..corpus import Corpus
from ..samples import Shape
from ..shards import Manifest, open_shards
from ..texts import Packing, laid_out
from . import Source


@register("data", "tokens")
class Tokens(Source):
    """The rows that the same text makes in memory, bit for bit; its splits are those it was tokenized with."""

    kinds = ("text",)

    class Config(Source.Config):
        """`path`: the folder; `packing`: as of any text source; `verify`: read every shard through before the first
        step, and compare it with the manifest, where false looks at the sizes alone."""

        path: str = Field(min_length=1)
        packing: Packing = "stream"
        verify: bool = True

    config: Config

    def corpus(self, tokenizer: Any, shape: Shape, cache: Path) -> Corpus:
        """Raises ConfigError for a tokenizer that isn't the shards' own, and for shards that aren't whole."""
        folder = Path(self.config.path).expanduser()
        manifest = Manifest.read(folder)
        # Special tokens of an objective stand behind all others, and no text encodes to them.
        plain = tokenizer.model_copy(update={"specials": ()})
        if plain.component.prepare(plain, (), cache).fingerprint != manifest.tokenizer:
            rule = f"the tokenizer that made the shards of {str(folder)!r}"
            raise ConfigError([Problem("tokenizer", f"{tokenizer.name}, another one", rule, manifest.asked(folder))])
        made = tokenizer.component.prepare(tokenizer, (), cache)
        train, val = (
            open_shards(folder, side, manifest.dtype, verify=self.config.verify)
            for side in (manifest.train, manifest.val)
        )
        size = manifest.val_bytes_per_token
        return laid_out(train, val, self.config.packing, made, shape, manifest.corpus, size)

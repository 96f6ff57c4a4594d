"""Any tokenizer that exists as a Hugging Face `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, Self

import tokenizers
from pydantic import Field, PositiveInt, model_validator

from ...errors import ConfigError, Problem, nearest
from ...registry import register
from . import Tokenizer
from ._json import FILE, JsonTokenizer, read_beside, read_json

# The usual names, tried in this order when the config gives none.
EOS = ("<eos>", "</s>", "<|endoftext|>", "<|end_of_text|>", "<|eos|>", "[EOS]", "<|im_end|>", "<|eot_id|>")
PAD = ("<pad>", "<|pad|>", "[PAD]", "<|padding|>", "<|finetune_right_pad_id|>", "<|vision_pad|>")


@register("tokenizer", "file")
class File(JsonTokenizer):
    """The tokenizer at `path`, as it is; where it has no padding token, `<pad>` is added behind its last id."""

    class Config(Tokenizer.Config):
        """`path` of a tokenizer.json; `eos` and `pad` name two of its tokens (null: the usual names are looked for).

        start  the token before a text that is written from a source; null: what the file puts before texts, or `eos`
        rows   of a model that is already there: where none is left for a padding token, `eos` pads too
        """

        path: str = Field(min_length=1)
        eos: str | None = None
        pad: str | None = None
        start: str | None = None
        rows: PositiveInt | None = None

        @model_validator(mode="after")
        def _differ(self) -> Self:
            if self.eos is not None and self.eos == self.pad:
                raise ValueError(f"eos and pad are both {self.eos!r}: padding is no end of a text, so they must differ")
            return self

        @property
        def size(self) -> int:
            """Read from the file. Raises ConfigError if that is missing or damaged, or has no token for `eos`."""
            return len(File.open(self))

        @property
        def beside(self) -> dict[str, str]:
            return read_beside(Path(self.path).expanduser())

    @classmethod
    def prepare(cls, config: Any, texts: Sequence[str], cache: Path) -> Self:
        return cls.open(config)

    @classmethod
    def load(cls, config: Any, folder: Path) -> Self:
        return cls.of(config, read_json(folder / FILE, "tokenizer", "restore the file in the run folder"))

    @classmethod
    def open(cls, config: Any) -> Self:
        """The tokenizer at `config.path`; read once while the file does not change."""
        file = Path(config.path).expanduser()
        stamp = (file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else None
        return _open(cls, config, file, stamp)

    @classmethod
    def of(cls, config: Any, backend: tokenizers.Tokenizer) -> Self:
        """`backend` with the tokens that `config` names. Raises ConfigError when it lacks one of them."""
        eos = _choose("eos", config.eos, [name for name in EOS if name != config.pad], backend)
        if eos is None:
            _refuse("eos", "null, and the file has none of the usual names", backend)
        pad = _choose("pad", config.pad, [name for name in PAD if name != eos], backend)
        if pad is None and config.rows is not None and _length(backend) >= config.rows:
            pad = eos  # as GPT-2 has it; a text may hold it, so no new text is trained on: see data/corpus
        elif pad is None:
            pad = next(name for name in PAD if name != eos)
            backend.add_special_tokens([pad])
        start = config.start and _choose("start", config.start, (), backend)
        return cls(backend, eos, pad, config.specials, start)


def _length(backend: tokenizers.Tokenizer) -> int:
    return max(backend.get_vocab(with_added_tokens=True).values()) + 1


@lru_cache(maxsize=4)
def _open(cls: type[File], config: Any, file: Path, stamp: tuple[int, int] | None) -> Any:
    return cls.of(config, read_json(file, "tokenizer.path", "tokenizer.path=<the path of a tokenizer.json>"))


def _choose(key: str, asked: str | None, usual: Iterable[str], backend: tokenizers.Tokenizer) -> str | None:
    if asked is None:
        return next((name for name in usual if backend.token_to_id(name) is not None), None)
    if backend.token_to_id(asked) is None:
        _refuse(key, f"{asked!r}, which is no token of the file", backend, asked)
    return asked


def _refuse(key: str, found: str, backend: tokenizers.Tokenizer, asked: str = "") -> NoReturn:
    special = [token.content for _, token in sorted(backend.get_added_tokens_decoder().items()) if token.special]
    close = nearest(asked, special)
    rule = f"a token of the file; its special tokens are {', '.join(special[:12]) or 'none'}"
    raise ConfigError([Problem(f"tokenizer.{key}", found, rule, f"tokenizer.{key}='{close or '<one of its tokens>'}'")])

"""What tokenizers kept in a Hugging Face `tokenizer.json` share."""

from __future__ import annotations

import json
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


def read_beside(file: Path) -> dict[str, str]:
    """What stands in the `tokenizer_config.json` and `chat_template.jinja` beside a tokenizer.json: `chat_template`,
    and the tokens `bos_token`, `eos_token` and so on. Raises ConfigError for a damaged one."""
    config, template = file.with_name("tokenizer_config.json"), file.with_name("chat_template.jinja")
    try:
        told = json.loads(config.read_text("utf-8")) if config.is_file() else {}
        named = {key: value.get("content") if isinstance(value, dict) else value for key, value in told.items()}
        if isinstance(several := named.get("chat_template"), list):  # of which one is called default
            named["chat_template"] = {one["name"]: one["template"] for one in several}.get("default")
        if template.is_file():
            named["chat_template"] = template.read_text("utf-8")
    except (OSError, ValueError, AttributeError, LookupError, TypeError) as error:
        found = f"{str(file)!r}, beside which {config.name} can't be read: {error}"
        raise ConfigError([Problem("tokenizer.path", found, "JSON as transformers writes it", "mend it")]) from None
    wanted = {key: value for key, value in named.items() if key == "chat_template" or key.endswith("_token")}
    return {key: value for key, value in wanted.items() if isinstance(value, str)}


class JsonTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library, with the tokens `eos` and `pad`, which it must hold.

    Special tokens asked for by what they are for are those of their usual name in the file, or else added to it.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, eos: str, pad: str, specials: Sequence[str] = (), start: str | None = None
    ):
        # A file may come with the truncation of the model it was trained for, which would cut documents short unseen.
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True  # "<eos>" written in a text is text
        tokens = {name: _token(backend, name) for name in specials}
        backend.add_special_tokens([*tokens.values()])
        ids = backend.get_vocab(with_added_tokens=True)
        self.named = {name: ids[token] for name, token in tokens.items()}
        added = backend.get_added_tokens_decoder()
        self._backend = backend
        self._length = max(ids.values()) + 1
        self.eos, self.pad = ids[eos], ids[pad]
        self.bos, self._start = _begins(backend), None if start is None else ids[start]
        self.specials = {token.content: id for id, token in added.items() if token.special}
        self.specials |= {eos: self.eos, pad: self.pad}
        self._silent = frozenset(self.specials.values())
        self.fingerprint = digest([backend.to_str(), eos, pad, *([] if start is None else [start])])

    @property
    def start(self) -> int:
        return super().start if self._start is None else self._start

    def save(self, folder: Path) -> None:
        """Writes `tokenizer.json`."""
        write_whole(folder / FILE, self._backend.to_str())

    def encode(self, text: str) -> list[int]:
        return self._backend.encode(text, add_special_tokens=False).ids

    def encode_corpus(self, texts: Sequence[str]) -> torch.Tensor:
        rows = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return torch.cat([torch.tensor([*self.begun(row.ids), self.eos], dtype=torch.int64) for row in rows])

    def decode(self, ids: Sequence[int]) -> str:
        return self._backend.decode([int(id) for id in ids if int(id) not in self._silent])

    def __len__(self) -> int:
        return self._length


def _begins(backend: tokenizers.Tokenizer) -> int | None:
    """The token that the file itself puts before a text; None where it puts none."""
    plain, whole = (backend.encode("a", add_special_tokens=told).ids for told in (False, True))
    before = next((place for place in range(len(whole)) if whole[place : place + len(plain)] == plain), 0)
    if before > 1:
        found = f"a file that puts {before} tokens before a text: {', '.join(map(str, whole[:before]))}"
        rule = "at most one stands there"
        raise ConfigError([Problem("tokenizer.path", found, rule, "a tokenizer.json with another post_processor")])
    return whole[0] if before else None


def _token(backend: tokenizers.Tokenizer, name: str) -> str:
    """What a special token is called in a file: its usual name where it stands there."""
    usual = (f"<{name}>", f"[{name.upper()}]", f"<|{name}|>", f"<{name.replace('sentinel', 'extra_id')}>")  # T5's last
    return next((token for token in usual if backend.token_to_id(token) is not None), usual[0])

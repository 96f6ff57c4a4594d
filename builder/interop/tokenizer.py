"""The tokenizer of a folder that transformers wrote, as one of ours, and ours as files that it reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models

from builder.data.tokenizer import Tokenizer
from builder.data.tokenizer._json import read_json
from builder.errors import ArchlabError

FILE = "tokenizer.json"
_BYTES = 258


def read_tokenizer(folder: Path, vocab_size: int) -> tuple[dict[str, Any], str]:
    """Our tokenizer section for a folder, and a note for the reader, "" when there is nothing to say.

    The ends are those that generation_config.json or config.json name by id; BERT's end is what separates. Without a
    tokenizer.json the text is taken for bytes where the vocabulary has their size; raises ArchlabError elsewhere.
    """
    file = folder / FILE
    if file.is_file():
        ends = (_token(file, folder, f"{name}_token_id") for name in ("eos", "sep"))
        eos = next(filter(None, ends), None) or _named(folder, "sep_token")
        pad = _token(file, folder, "pad_token_id")
        section = {
            "name": "file",
            "path": str(file),
            "eos": eos,
            "pad": pad if pad != eos else None,
            "rows": vocab_size,
            "start": _token(file, folder, "decoder_start_token_id"),
        }
        if (names := _byte_names(read_json(file, str(file), "save the tokenizer there anew"))) is not None:
            return {"name": "bytes", **({"specials": names} if names else {})}, ""
        return {key: value for key, value in section.items() if value is not None}, ""
    if _BYTES <= vocab_size < 2 * _BYTES:
        return {
            "name": "bytes"
        }, f"{folder} has no {FILE}; its vocabulary has the size of bytes, so text is read as bytes"
    raise ArchlabError(
        f"hf: {folder} has no {FILE}, and {vocab_size} rows aren't bytes: nothing says what its ids mean; "
        f"save the tokenizer there, AutoTokenizer.from_pretrained(...).save_pretrained({str(folder)!r})"
    )


def _byte_names(backend: tokenizers.Tokenizer) -> list[str] | None:
    """What our own bytes were written as: the names of the special tokens behind `eos` and `pad`; None: no bytes."""
    vocab = backend.get_vocab(with_added_tokens=True)
    names = {id: token for token, id in vocab.items()}
    ours = [f"<0x{byte:02X}>" for byte in range(256)] + ["<eos>", "<pad>"]
    if [names.get(id) for id in range(_BYTES)] != ours or sorted(names) != list(range(len(names))):
        return None
    return [names[id].strip("<>") for id in range(_BYTES, len(names))]


def write_tokenizer(tokenizer: Tokenizer, folder: Path, length: int, *, starts: bool = False) -> dict[str, Any]:
    """Writes tokenizer.json, tokenizer_config.json and generation_config.json; gives the ids for config.json.

    starts   whether the model answers a source, its answers begun by a token of their own
    """
    tokenizer.save(folder)
    text = "aé\n<"
    if not (folder / FILE).is_file() and (made := _bytes(tokenizer)).encode(text).ids == tokenizer.encode(text):
        made.save(str(folder / FILE))
    names = {id: name for name, id in tokenizer.specials.items()}
    said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": length}
    said |= {"eos_token": names[tokenizer.eos], "pad_token": names[tokenizer.pad]}
    begins = tokenizer.eos if tokenizer.bos is None else tokenizer.bos
    ids = {"bos_token_id": begins, "eos_token_id": tokenizer.eos, "pad_token_id": tokenizer.pad}
    if starts:
        ids["decoder_start_token_id"] = tokenizer.start
    if (chat := tokenizer.chat) is not None:
        said["chat_template"] = chat.template
    (folder / "tokenizer_config.json").write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(ids, indent=2) + "\n", encoding="utf-8")
    return ids


def _token(file: Path, folder: Path, key: str) -> str | None:
    """The token that the folder's configs name by id; the first one where they name several."""
    for name in ("generation_config.json", "config.json"):
        if (folder / name).is_file():
            stated = _fields(folder / name).get(key)
            first = next(iter(stated), None) if isinstance(stated, list) else stated
            if (
                isinstance(first, int) and not isinstance(first, bool) and 0 <= first < 2**32
            ):  # -1 says that there is none
                backend = read_json(file, str(file), "save the tokenizer there anew")
                return backend.id_to_token(first)
    return None


def _named(folder: Path, key: str) -> str | None:
    """The token that the tokenizer's own files name so."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        stated = _fields(folder / name).get(key) if (folder / name).is_file() else None
        token = stated.get("content") if isinstance(stated, dict) else stated
        if isinstance(token, str):
            return token
    return None


def _fields(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArchlabError(f"hf: {file} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ArchlabError(f"hf: {file} holds no fields, but {type(found).__name__}")
    return found


def _bytes(tokenizer: Tokenizer) -> tokenizers.Tokenizer:
    """Bytes as the tokenizers library has them: characters without an id of their own fall back to the ids of bytes."""
    backend = tokenizers.Tokenizer(models.BPE({f"<0x{byte:02X}>": byte for byte in range(256)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens(sorted(tokenizer.specials, key=tokenizer.specials.__getitem__))
    return backend

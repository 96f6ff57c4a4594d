"""The translations in a gettext catalogue, as translators write it (.po) or as a program reads it (.mo)."""

from __future__ import annotations

import gettext
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Pair = tuple[str, str]

_LINE = re.compile(r'(?:(msgctxt|msgid|msgid_plural|msgstr)(?:\[(\d+)\])?\s*)?"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)")
_PLAIN = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


def read_catalogue(file: Path) -> list[Pair]:
    """What is translated in a .po or .mo file, (message, translation), in its order; of plurals the first form.

    Left out: the header, what has no translation, and what is marked fuzzy or obsolete. Raises OSError for a file that
    can't be read, ValueError for one that is no catalogue.
    """
    pairs = _READERS[file.suffix.lower()](file)
    return [(message, translation) for message, translation in pairs if message and translation]


def _mo(file: Path) -> Iterator[Pair]:
    try:
        with file.open("rb") as stream:
            catalog = vars(gettext.GNUTranslations(stream))["_catalog"]  # the only way to all of it
    except OSError as error:
        if error.strerror == "Bad magic number":
            raise ValueError("no .mo file") from None
        raise
    except Exception as error:  # what struct, codecs and the reader of plural forms say of damaged files
        raise ValueError(f"a damaged .mo file: {error}") from None
    for key, translation in catalog.items():
        message, form = key if isinstance(key, tuple) else (key, 0)
        if form == 0:
            yield message.rpartition("\x04")[2], translation  # the context stands before


@dataclass
class _Entry:
    """What has been read of an entry: its texts by keyword, and whether it is to be left out."""

    texts: dict[str, str] = field(default_factory=dict)
    fuzzy: bool = False


def _po(file: Path) -> Iterator[Pair]:
    """The format of "The format of PO files" in the manual of GNU gettext."""
    data = file.read_bytes()
    charset = re.search(rb"charset=([\w.:-]+)", data)
    name = charset[1].decode() if charset else "utf-8"
    try:
        lines = data.decode("utf-8-sig" if name.lower() in ("utf-8", "utf8", "charset") else name).split("\n")
    except (UnicodeDecodeError, LookupError) as error:
        raise ValueError(f"not {name}: {error}") from None
    entry, last = _Entry(), ""
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if line.startswith("#"):
            if "msgstr" in entry.texts:
                yield from _done(entry)
                entry = _Entry()
            if line.startswith("#,"):
                entry.fuzzy |= "fuzzy" in line
            if line.startswith("#~"):  # obsolete, and so were the flags before it
                entry = _Entry()
            continue
        if not line:
            continue
        found = _LINE.fullmatch(line)
        if not found or not (found[1] or last):
            raise ValueError(f"line {number} is no line of a .po file: {line[:60]!r}")
        key, form, text = found[1], found[2], _ESCAPE.sub(_unescaped, found[3])
        if key:
            if key in ("msgctxt", "msgid") and "msgstr" in entry.texts:
                yield from _done(entry)
                entry = _Entry()
            last = key if form in (None, "0") else f"{key}[{form}]"
        entry.texts[last] = text if key else entry.texts[last] + text
    yield from _done(entry)


def _done(entry: _Entry) -> Iterator[Pair]:
    if not entry.fuzzy:
        yield entry.texts.get("msgid", ""), entry.texts.get("msgstr", "")


def _unescaped(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return chr(int(code, 8)) if code[0] in "01234567" else _PLAIN.get(code, code)


_READERS = {".po": _po, ".mo": _mo}

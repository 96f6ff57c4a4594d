"""Markdown that says what was meant, whatever stands in the text: tables, and words with no marks of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MARK = re.compile(r"[\\`*|~$]|(?<=\])\(|(?<![^\W_])_|_(?![^\W_])")
"""What would mark something: brackets do where they make a link, an underscore at the edge of a word."""


def plain(text: str) -> str:
    """`text` as Markdown that is read as it stands, in one line: `<eos>` stays, `a|b` opens no cell."""
    kept = _MARK.sub(r"\\\g<0>", text.replace("&", "&amp;").replace("<", "&lt;"))
    return "<br>".join(line.strip() for line in kept.splitlines())


def code(text: str) -> str:
    """`text`, one line of it, in the letters of code; a bar in it opens no cell of a table."""
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    room = " " * (len(fence) > 1)
    return f"{fence}{room}{' '.join(text.splitlines())}{room}{fence}".replace("|", "\\|") if text else ""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a line for each row; cells are Markdown already."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

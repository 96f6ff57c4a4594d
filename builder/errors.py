"""What goes wrong in a way the user can mend: one sentence each, with the place, the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass


class ArchlabError(Exception):
    """A fault the user can mend; commands print its text and exit with `exit_code`, never with a traceback."""

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One fault of a config: `path` holds `found`; `rule` says what is allowed; `fix` says what to write."""

    path: str
    found: str
    rule: str
    fix: str = ""

    def __str__(self) -> str:
        lines = [f"{self.path or 'config'}: found {self.found}", f"    rule: {self.rule}"]
        if self.fix:
            lines.append(f"    fix:  {self.fix}")
        return "\n".join(lines)


def shown(value: object) -> str:
    """A config value as YAML writes it."""
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else repr(value)


class ConfigError(ArchlabError):
    """Every problem of one config, together."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{head} in the config", *map(str, self.problems)]))


def nearest(word: str, valid: Iterable[str]) -> str | None:
    """The valid word most like `word`, or None when nothing is close."""
    found = difflib.get_close_matches(word, list(valid), n=1, cutoff=0.5)
    return found[0] if found else None


def expect(given: object, kind: type, where: str, fix: str) -> None:
    """Raises TypeError, with what to write, unless a function of the Python interface was given what it takes."""
    if not isinstance(given, kind):
        raise TypeError(f"{where} takes a {kind.__name__}, found a {type(given).__name__}; write {fix}")

"""A smaller run that proposes tokens to another one."""

from __future__ import annotations

from rich.console import Console

from builder.errors import ConfigError, Problem

from .run import Run, load_run
from .sample import Proposals


def proposals(run: Run, path: str, draft: str, count: int | None) -> Proposals:
    """What the run in the folder `draft` proposes to the one in `path`, so many tokens at a time or by default.

    Raises ConfigError where the two don't read the same text behind an id.
    """
    smaller = load_run(draft)
    if not _alike(run, smaller):
        rule = f"a run whose tokenizer is that of {path}: what one proposes, the other must read as the same text"
        raise ConfigError([Problem("draft", repr(draft), rule, "a draft trained with the same data and tokenizer")])
    return Proposals(smaller.model, count, Console(stderr=True))


def _alike(run: Run, draft: Run) -> bool:
    ours, theirs = run.tokenizer, draft.tokenizer
    return len(ours) == len(theirs) and all(ours.decode([i]) == theirs.decode([i]) for i in range(len(ours)))

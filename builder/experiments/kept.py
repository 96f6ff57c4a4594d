"""The checkpoints by step that a run keeps: `last.ckpt` is a link to the newest, and a damaged one is set aside."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from builder.errors import ArchlabError

from .folder import RunFolder


def named(step: int) -> str:
    """The name of the checkpoint that was written after `step`."""
    return f"step-{step:06d}"


def by_step(folder: RunFolder) -> list[Path]:
    """The checkpoints that are kept by step, the newest first."""
    found = [path for path in folder.checkpoints.glob("step-*.ckpt") if path.stem[5:].isdecimal()]
    return sorted(found, key=lambda path: int(path.stem[5:]), reverse=True)


def keep(folder: RunFolder, step: int, count: int) -> None:
    """Makes the checkpoint of `step`, which is whole by now, the last one, and removes all but the newest `count`."""
    _point(folder, folder.checkpoint(named(step)))
    for old in by_step(folder)[count:]:
        remove(old)


def choose(folder: RunFolder, tell: Callable[[str], None]) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint to go on from, and what it holds beside parts; None where none was written.

    A damaged one that is newer is told and set aside, so that nothing takes it for the last one any more. Raises
    ArchlabError when all are damaged.
    """
    from builder.training.checkpoint import Damaged, glance  # imports lightning

    damaged: list[tuple[Path, Damaged]] = []
    last = folder.checkpoint("last")
    alone = [last] if last.exists() and not last.is_symlink() else []  # as runs had it that kept no other
    for path in [*by_step(folder), *alone]:
        try:
            contents = glance(path)
        except Damaged as error:
            damaged.append((path, error))
            continue
        for other, error in damaged:
            aside = other.replace(other.with_name(f"{other.name}.damaged"))
            tell(f"{error}\ngoing on from {path.stem}, the one before it; {aside} is what was damaged")
        if damaged and path != last:
            _point(folder, path)
        return path, contents
    if damaged:
        raise ArchlabError("\n".join(str(error) for _, error in damaged))
    return None


def clear_drafts(folder: RunFolder) -> None:
    """Removes what a kill left half-written; no one else may be writing to the run."""
    for place in (folder.path, folder.checkpoints):
        for draft in place.glob(".*.part"):
            remove(draft)


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that is in it: under another name first, so that no half of it is met."""
    if path.is_dir() and not path.is_symlink():
        doomed = path if path.suffix == ".part" else path.replace(path.with_name(f".{path.name}.part"))
        shutil.rmtree(doomed)
    else:
        path.unlink(missing_ok=True)


def _point(folder: RunFolder, path: Path) -> None:
    """Makes last.ckpt lead to `path`, in one move."""
    last = folder.checkpoint("last")
    draft = last.with_name(f".{last.name}.part")
    draft.unlink(missing_ok=True)
    os.symlink(path.name, draft)
    os.replace(draft, last)

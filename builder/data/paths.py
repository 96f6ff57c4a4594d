"""The files behind a `data.path`: a file, a folder with all that lies below it, or a glob."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import NoReturn

from ..errors import ConfigError, Problem


def files_at(given: str, rule: str) -> list[Path]:
    """The files of a path, sorted; hidden ones below a folder are left out.

    Raises ConfigError, with `rule` on what the path must be, when nothing is there or it can't be read.
    """
    path = Path(given).expanduser()
    try:
        if path.is_dir():
            files = _below(path)
        elif path.exists():
            files = [path]
        elif glob.has_magic(given):
            files = sorted(file for file in map(Path, glob.glob(str(path), recursive=True)) if not file.is_dir())
        else:
            refuse_path(f"{given!r}, which does not exist (looked in {Path.cwd()})", rule, "an existing path")
    except OSError as error:
        refuse_path(
            f"{error.filename or path}, which can't be read: {error.strerror or error}", rule, "a readable path"
        )
    if not files:
        refuse_path(f"{given!r}, which matches no file", rule, "a path or glob with files; ** enters folders")
    return files


def refuse_path(found: str, rule: str, fix: str) -> NoReturn:
    """Raises ConfigError that `data.path` holds `found`."""
    raise ConfigError([Problem("data.path", found, rule, fix)])


def some(faults: list[str]) -> str:
    """The first three, and how many there are beside them."""
    return ", ".join(faults[:3]) + (f" and {len(faults) - 3} more" if len(faults) > 3 else "")


def _below(folder: Path) -> list[Path]:
    def fail(error: OSError) -> None:  # os.walk would pass over a folder it may not read
        raise error

    files: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:  # a link back up
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(files)

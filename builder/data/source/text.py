"""Text files of one's own: a file, a folder with all that lies below it, or a glob."""

from __future__ import annotations

import glob
import os
from pathlib import Path
from typing import NoReturn

from pydantic import Field

from ...errors import ConfigError, Problem
from ...registry import register
from . import Source

RULE = "a UTF-8 text file, a folder of them, or a glob"


@register("data", "text")
class Text(Source):
    """One document per file, sorted by path; hidden files are left out, empty ones add nothing."""

    class Config(Source.Config):
        """`path`: a file, a folder (all files below it), or a glob such as `notes/**/*.md`."""

        path: str = Field(min_length=1)

    config: Config

    def documents(self) -> list[str]:
        """The texts of the files. Raises ConfigError when none is found, one is no readable text, or all are empty."""
        files = self._files()
        texts: list[str] = []
        faults: list[str] = []
        for file in files:
            try:
                texts.append(_read(file))
            except OSError as error:
                faults.append(f"{file} (can't be read: {error.strerror or error})")
            except ValueError as error:
                faults.append(f"{file} ({error})")
        if faults:
            more = f" and {len(faults) - 3} more" if len(faults) > 3 else ""
            self._refuse(
                f"{len(faults)} of {len(files)} files that are no readable text: {', '.join(faults[:3])}{more}",
                "a glob that selects only text, such as data.path='folder/**/*.txt', or files converted to UTF-8",
            )
        texts = [text for text in texts if text.strip()]
        if not texts:
            self._refuse(
                f"{self.config.path!r}, where every file is empty ({len(files)} in all)", "the path of real text"
            )
        return texts

    def _files(self) -> list[Path]:
        path = Path(self.config.path).expanduser()
        try:
            if path.is_dir():
                files = _below(path)
            elif path.exists():
                files = [path]
            elif glob.has_magic(self.config.path):
                files = sorted(file for file in map(Path, glob.glob(str(path), recursive=True)) if not file.is_dir())
            else:
                self._refuse(f"{self.config.path!r}, which does not exist (looked in {Path.cwd()})", "an existing path")
        except OSError as error:
            self._refuse(f"{error.filename or path}, which can't be read: {error.strerror or error}", "a readable path")
        if not files:
            self._refuse(f"{self.config.path!r}, which matches no file", "a path or glob with files; ** enters folders")
        return files

    def _refuse(self, found: str, fix: str) -> NoReturn:
        raise ConfigError([Problem("data.path", found, RULE, fix)])


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


def _read(file: Path) -> str:
    if file.exists() and not file.is_file():  # a pipe or a device would block or never end
        raise ValueError("not a regular file")
    data = file.read_bytes()
    zero = data.find(b"\0")
    if zero >= 0:
        raise ValueError(f"binary: a NUL byte at offset {zero}")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}") from None

"""Files that are written whole or not at all: no reader, and no crash, ever leaves half of one behind."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def whole(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file to write to, which takes its place at `path` in one move once the block has ended well. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    binary = "b" in mode
    try:
        with os.fdopen(handle, mode, encoding=None if binary else "utf-8", newline=None if binary else "") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(draft, 0o666 & ~_umask())  # a draft is its owner's alone, the file is like any other
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Writes `text` to `path` in one move. Raises OSError."""
    with whole(path) as file:
        file.write(text)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

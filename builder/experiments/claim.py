"""A claim to write to a run folder: a lock that the system lets go of when the last process of the run has ended."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from builder.errors import ArchlabError

WAIT = 3.0
"""Seconds in which the ranks of a run that was killed end by themselves."""

_LOCKS = Path("/proc/locks")
"""Where Linux lists who holds a lock: `1: FLOCK ADVISORY WRITE <pid> <device>:<inode> 0 EOF`."""


class Claim:
    """One run writes to a folder at a time; those that only read it ask for nothing.

    The lock is on its config.yaml, which no run changes, so that none leaves a file behind. Who makes a run ready has
    it alone, and shares it with the ranks that then train: each holds on to it, whichever of them lives longest. Where
    a file system knows no locks there are none.

    As a context manager it lets go at the end.
    """

    def __init__(self) -> None:
        self._file: IO[Any] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def take(self, config: Path, key: str) -> None:
        """Claims the folder of this config.yaml; raises ArchlabError, naming `key`, where another process has it."""
        self._file = _opened(config)
        ends = time.monotonic() + WAIT
        while not self._locked(fcntl.LOCK_EX):
            if time.monotonic() >= ends:
                raise ArchlabError(
                    f"{key}: found {str(config.parent)!r}, to which {_holder(self._file)} is writing; wait for it to "
                    "end, or end it, and try again"
                )
            time.sleep(0.1)

    def share(self, config: Path) -> None:
        """Lets other processes of the same run join, or joins them."""
        self._file = self._file or _opened(config)
        if not self._locked(fcntl.LOCK_SH):
            who = _holder(self._file)
            raise ArchlabError(f"{config.parent}: {who} is writing to it; wait for it to end, or end it")

    def _locked(self, how: int) -> bool:
        """Whether the lock is had; where there can be none, it counts as had."""
        if self._file is None:
            return True
        try:
            fcntl.flock(self._file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True


def writer(config: Path) -> str | None:
    """Who writes to the folder of this config.yaml, in words; None: nobody does."""
    with Claim() as claim:
        claim._file = _opened(config)
        return None if claim._locked(fcntl.LOCK_SH) else _holder(claim._file)


def _opened(config: Path) -> IO[Any] | None:
    """The file, for writing where that is allowed: over a network only such a one can be locked. It isn't written."""
    for mode in ("rb+", "rb"):
        try:
            return config.open(mode)
        except OSError:
            continue
    return None


def _holder(file: IO[Any] | None) -> str:
    """Who has the lock on a file, as far as this machine knows."""
    try:
        inode = os.fstat(file.fileno()).st_ino if file is not None else None
        rows = (line.split() for line in _LOCKS.read_text().splitlines())
        pid = next(row[4] for row in rows if row[1] == "FLOCK" and row[5].endswith(f":{inode}"))
    except (OSError, StopIteration, IndexError):
        return "another process"
    return f"the process {pid}"

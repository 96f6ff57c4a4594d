"""Locks between processes: files in the folder of a sweep that the system lets go of when their holder ends."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

FOLDER = ".locks"
SWEEP = "sweep"
"""The lock of who plans a folder; those of its jobs have their numbers."""


class Taken(Exception):
    """Another process holds the lock."""


@contextmanager
def held(sweep: Path, name: str, wait: float) -> Iterator[None]:
    """Holds the lock `name` of a sweep; raises Taken when another process still has it after `wait` seconds."""
    folder = sweep / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / name, "w") as lock:
        ends = time.monotonic() + wait
        while not locked(lock):
            if time.monotonic() >= ends:
                raise Taken
            time.sleep(0.1)
        yield


def locked(file: IO[Any]) -> bool:
    """Locks a file until it is closed, unless another process has; whether that was done."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

"""What a full disk makes of a write: one sentence with the place, what is free there, and what was to be written."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ArchlabError

_FULL = (errno.ENOSPC, errno.EDQUOT)


class DiskFull(ArchlabError):
    """No room for a file; what was there before is as it was."""


@contextmanager
def room_for(path: Path, size: Callable[[], int] | None = None) -> Iterator[None]:
    """Raises DiskFull where the block fails for want of room; `size` says, after that, how many bytes were wanted."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        free = shutil.disk_usage(path.parent).free
        wanted = f" of the {_told(size())} that it takes" if size is not None else ""
        whose = " of your quota" if error.errno == errno.EDQUOT else ""
        raise DiskFull(
            f"{path}: no room is left{whose}: {_told(free)} are free on its disk{wanted}; what was saved before is "
            "whole: make room, then go on with resume=<the run folder>"
        ) from None


def _told(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"

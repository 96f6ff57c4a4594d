"""What a disk that takes no more makes of a write: one sentence with the place, why, and what was to be written."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import ArchlabError

_REFUSED = {
    errno.ENOSPC: ("no room is left", "make room"),
    errno.EDQUOT: ("no room is left of your quota", "make room"),
    errno.EFBIG: ("no file may become so large here", "raise the limit (ulimit -f, or that of the file system)"),
    errno.EROFS: ("its disk can only be read now", "make it writable again"),
}
"""What a disk says that doesn't take a file, and what is to be done about it."""


_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Of these, those for which it matters what is free."""

_KEPT, _GO_ON = "what was saved before is whole", "go on with resume=<the run folder>"


class DiskFull(ArchlabError):
    """A disk doesn't take a file, for want of room or because it may not; what was there before is as it was."""


@contextmanager
def room_for(path: Path, size: Callable[[], int] | None = None) -> Iterator[None]:
    """Raises DiskFull where the block fails since the disk takes no more; `size` says, after that, how many bytes were
    wanted."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        said, remedy = _REFUSED[error.errno]
        if error.errno not in _FULL:
            raise DiskFull(f"{path}: {said}; {_KEPT}: {remedy}, then {_GO_ON}") from None
        free = shutil.disk_usage(path.parent).free
        wanted = f" of the {_told(size())} that it takes" if size is not None else ""
        raise DiskFull(
            f"{path}: {said}: {_told(free)} are free on its disk{wanted}; {_KEPT}: {remedy}, then {_GO_ON}"
        ) from None


def _told(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"

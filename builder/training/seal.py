"""A sha256 that a zip file carries in its own comment, so that no crash can part a checkpoint from its hash."""

from __future__ import annotations

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

_MARK = b"sha256 "
_SIZE = len(_MARK) + 64
_END = b"PK\x05\x06"  # the last record of a zip, of 22 bytes, whose last two say how long the comment behind it is
_PLAIN = 22
_LARGE = 1 << 20  # bytes from which on a second thread is worth its while


class Sealing:
    """Takes a zip that has no comment, as `torch.save` writes it, and passes it on with its sha256 behind it.

    A write that fails is kept for `seal` to raise, and what follows is only counted: torch can't be stopped half-way.
    """

    def __init__(self, file: IO[bytes]):
        self.size = 0
        self._file, self._hash = file, hashlib.sha256()
        self._held, self._failed = b"", None
        self._beside = ThreadPoolExecutor(1)  # hashes while the disk is written: neither holds Python's lock

    def write(self, data: Any) -> int:
        """Writes on, and adds to what the seal is of."""
        view = memoryview(data).cast("B")
        if len(view) < 2:
            view = memoryview(self._held + bytes(view))
        else:
            self._pass(self._held)
        self._pass(view[:-2])
        self._held = bytes(view[-2:])  # once the end is known, the length of the comment will stand there
        return len(data)

    def flush(self) -> None:
        """Nothing: torch asks for it, and whoever opened the file does it."""

    def seal(self) -> None:
        """Ends the file; raises OSError where a write failed, and ValueError when it was no zip without a comment."""
        if self._held != bytes(2):
            raise ValueError("only a zip without a comment can be sealed")
        self._pass(_SIZE.to_bytes(2, "little"))
        self._pass(_MARK + self._hash.hexdigest().encode())
        if self._failed is not None:
            raise self._failed

    def _pass(self, data: bytes | memoryview) -> None:
        self.size += len(data)
        if self._failed is not None:
            return
        hashed = self._beside.submit(self._hash.update, data) if len(data) >= _LARGE else self._hash.update(data)
        try:
            self._file.write(data)
        except OSError as error:
            self._failed = error
        finally:
            if hashed is not None:
                hashed.result()  # torch takes the memory back


def verify(path: Path) -> None:
    """Raises ValueError when a zip isn't as it was written, by its sha256, or by the checksums of its parts."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - _SIZE, 0))
        end = file.read()
        if end.startswith(_MARK):
            if end[len(_MARK) :] != _hash(file, size - _SIZE).encode():
                raise ValueError("its content doesn't have the sha256 that it was written with")
        elif end[-_PLAIN:][: len(_END)] != _END or end[-2:] != bytes(2):
            raise ValueError("it doesn't end as a checkpoint does")
        elif (part := zipfile.ZipFile(file).testzip()) is not None:  # torch itself doesn't look at the checksums
            raise ValueError(f"the checksum of {part} is wrong")


def _hash(file: IO[bytes], size: int) -> str:
    """The sha256 of the first `size` bytes."""
    file.seek(0)
    found, block = hashlib.sha256(), memoryview(bytearray(1 << 20))
    while size and (count := file.readinto(block[: min(size, len(block))])):  # type: ignore[attr-defined]
        found.update(block[:count])
        size -= count
    return found.hexdigest()

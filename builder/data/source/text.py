"""Text files of one's own: a file, a folder with all that lies below it, or a glob."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from ...registry import register
from ..paths import files_at, refuse_path, some
from . import TextSource

RULE = "a UTF-8 text file, a folder of them, or a glob"


@register("data", "text")
class Text(TextSource):
    """One document per file, sorted by path; hidden files are left out, empty ones add nothing."""

    class Config(TextSource.Config):
        """`path`: a file, a folder (all files below it), or a glob such as `notes/**/*.md`."""

        path: str = Field(min_length=1)

    config: Config

    def documents(self) -> list[str]:
        """The texts of the files. Raises ConfigError when none is found, one is no readable text, or all are empty."""
        files = files_at(self.config.path, RULE)
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
            refuse_path(
                f"{len(faults)} of {len(files)} files that are no readable text: {some(faults)}",
                RULE,
                "a glob that selects only text, such as data.path='folder/**/*.txt', or files converted to UTF-8",
            )
        texts = [text for text in texts if text.strip()]
        if not texts:
            refuse_path(
                f"{self.config.path!r}, where every file is empty ({len(files)} in all)", RULE, "the path of real text"
            )
        return texts


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

"""Rows with named columns, from a file or a hub, read by the `datasets` library."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError, Problem, nearest
from .paths import files_at, refuse_path

_JSON = (".json", ".jsonl", ".ndjson")
RULE = "a .jsonl, .json, .csv, .tsv, .parquet or .txt file (a row a line), a folder of them, or a glob"


@dataclass(frozen=True)
class Table:
    """The rows of one file or hub; `place` is where they are from, `file` where that is a file."""

    place: str
    data: Any
    file: Path | None = None

    def rows(self, columns: Sequence[str], path: str = "data.columns") -> Iterator[tuple[str, tuple[Any, ...]]]:
        """(where it stands, the values of `columns`) of every row.

        Raises ConfigError for a column that isn't there, and for a row that lacks the field of one.
        """
        there = list(self.data.column_names)
        for column in columns:
            if column not in there:
                found = f"{column!r}, which is no column of {self.place}; it has {', '.join(there)}"
                fix = f"{path}=[{', '.join(nearest(name, there) or '<one of its columns>' for name in columns)}]"
                raise ConfigError([Problem(path, found, "columns that every file has", fix)])
        values = zip(*(self.data[column] for column in columns), strict=True)
        for number, row in enumerate(values, 1):
            where = f"{self.place}, row {number}"
            if None in row and (missing := [name for name in columns if name in self._lacking(number)]):
                found = f"{where}: it has no field {missing[0]!r}"
                raise ConfigError(
                    [Problem("data.path", found, "each row has every field that is read", "mend the row")]
                )
            yield where, row

    def _lacking(self, number: int) -> set[str]:
        """The columns that a row of a file of JSON doesn't state, which the library takes for null."""
        if self.file is None or self.file.suffix.lower() not in _JSON:
            return set()
        text = self.file.read_text(encoding="utf-8")
        try:
            whole = json.loads(text)
            rows = whole if isinstance(whole, list) else [whole]
        except ValueError:  # a row a line
            rows = [json.loads(line) for line in text.split("\n") if line.strip()]
        row = rows[number - 1] if number <= len(rows) else None
        return set(self.data.column_names) - row.keys() if isinstance(row, dict) else set()


def local_tables(path: str, cache: Path) -> list[Table]:
    """A table for each file at `path`, read without a network, kept in `cache`. Raises ConfigError, with the file."""
    return [Table(str(file), _local(file, cache), file) for file in files_at(path, RULE)]


def hub_table(name: str, subset: str | None, part: str, cache: Path) -> Table:
    """The rows of a dataset on the Hugging Face hub. Raises ConfigError, with what the library says."""
    with _quiet() as datasets:
        try:
            return Table(f"{name} ({part})", datasets.load_dataset(name, subset, split=part, cache_dir=str(cache)))
        except Exception as error:  # the library's own, and those of everything that it calls
            rule = "a dataset of the hub that can be reached and has such a part"
            found = f"{name!r}, part {part!r}: {_told(error)}"
            raise ConfigError([Problem("data.hub", found, rule, "a local copy: data.path=...")]) from None


@contextmanager
def _quiet() -> Iterator[Any]:
    """The library, while it says nothing by itself."""
    import datasets

    bars, level = datasets.are_progress_bars_disabled(), datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    try:
        yield datasets
    finally:
        datasets.logging.set_verbosity(level)
        if not bars:
            datasets.enable_progress_bars()


def _local(file: Path, cache: Path) -> Any:
    reader = _READERS.get(file.suffix.lower())
    if reader is None:
        refuse_path(f"{file}, whose kind its name doesn't say", RULE, "another name, or a glob that leaves it out")
    try:
        if not file.stat().st_size:
            raise ValueError("it is empty")
        if file.suffix.lower() != ".parquet":
            with file.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    _refuse_bytes(line, number)
        with _quiet() as datasets:
            return reader(datasets, file, str(cache / "datasets"))
    except Exception as error:  # the library's own, and those of pyarrow and pandas
        refuse_path(f"{file}, which can't be read: {_bad_line(file) or _told(error)}", RULE, "mend the file")


def _refuse_bytes(line: bytes, number: int) -> None:
    """Raises ValueError for a line that is no UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"line {number} is not UTF-8: byte 0x{line[error.start]:02x}") from None


def _told(error: BaseException) -> str:
    """The first line of what the cause of an error says."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error) or type(error).__name__).strip().splitlines()[0]


def _bad_line(file: Path) -> str:
    """Which line of a file of JSON lines is none, and why."""
    if file.suffix.lower() in (".jsonl", ".ndjson"):
        for number, line in enumerate(file.read_bytes().split(b"\n"), 1):
            try:
                if line.strip():
                    json.loads(line)
            except ValueError as error:
                return f"line {number}: {error}"
    return ""


def _json(datasets: Any, file: Path, cache: str) -> Any:
    return datasets.Dataset.from_json(str(file), cache_dir=cache)


def _csv(datasets: Any, file: Path, cache: str, sep: str = ",") -> Any:
    # Text that happens to be a number, or to say NA, is text.
    texts = datasets.Features({name: datasets.Value("string") for name in _header(file, sep)})
    return datasets.Dataset.from_csv(str(file), features=texts, cache_dir=cache, keep_default_na=False, sep=sep)


def _header(file: Path, sep: str) -> list[str]:
    """The names of the columns; raises ValueError with the line of a row that has another number of fields, whose
    values the library would give to other columns."""
    limit = csv.field_size_limit(sys.maxsize)  # a document may be long
    with file.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter=sep, strict=True)
        try:
            names, begins, count = next(filter(_is_row, rows), []), rows.line_num + 1, 0
            if not all(names) or len({*names}) < len(names):
                raise ValueError(f"the header is {', '.join(map(repr, names))}, and each column has a name of its own")
            for row in rows:
                if _is_row(row) and len(row) != len(names):
                    has = f"line {begins} has {len(row)} field{'s' * (len(row) > 1)}, and the header {len(names)}"
                    rule = f"a text with {sep!r} or a line break in it stands in double quotes"
                    raise ValueError(f"{has}: {', '.join(names)}; {rule}")
                begins, count = rows.line_num + 1, count + _is_row(row)
        except csv.Error as error:
            raise ValueError(f"line {rows.line_num}: {error}") from None
        finally:
            csv.field_size_limit(limit)
    if not count:
        raise ValueError("it has no rows below its header")
    return names


def _is_row(fields: list[str]) -> bool:
    """Whether a line is one to the library, which passes over blank ones."""
    return len(fields) > 1 or bool(fields and fields[0].strip())


def _tsv(datasets: Any, file: Path, cache: str) -> Any:
    return _csv(datasets, file, cache, "\t")


def _parquet(datasets: Any, file: Path, cache: str) -> Any:
    return datasets.Dataset.from_parquet(str(file), cache_dir=cache)


def _text(datasets: Any, file: Path, cache: str) -> Any:
    return datasets.Dataset.from_text(str(file), cache_dir=cache)


_READERS: dict[str, Callable[[Any, Path, str], Any]] = {
    ".json": _json,
    ".jsonl": _json,
    ".ndjson": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
    ".txt": _text,
}

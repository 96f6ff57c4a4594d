"""Text that is tokenized already: shards on disk that are mapped into memory, and the manifest that lists them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import numpy
import torch
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from torch import Tensor

from ..errors import ConfigError, Problem
from ..section import Section
from ..whole import whole, write_whole
from .ragged import Ragged

MANIFEST = "shards.json"
HERE = "<folder>"
RULE = "a folder that recipes.tokenize wrote"


class Shard(Section):
    """Two files: `<name>.bin`, the ids of whole documents, and `<name>.idx`, how many each of them has (int64).

    digest   SHA-256 of the first file and then the second, in hex
    """

    name: str
    tokens: int
    documents: int
    largest_id: int
    digest: str


Shards = Annotated[tuple[Shard, ...], Field(strict=False)]


class Manifest(Section):
    """The shards of both splits in their order, and what made them.

    tokenizer    its fingerprint; `write` is how a config asks for it, with HERE for the folder of the shards
    dtype        of the ids: the smallest that holds every id there is
    corpus       the fingerprint that the same text has in memory
    """

    tokenizer: str
    write: str
    dtype: Literal["uint16", "uint32"]
    corpus: str
    val_bytes_per_token: float
    train: Shards
    val: Shards

    def asked(self, folder: Path | str) -> str:
        """The overrides that ask for the tokenizer of the shards in `folder`."""
        return self.write.replace(HERE, str(folder))

    def save(self, folder: Path) -> None:
        """Writes it to `folder`: the last of the files, so that what has one is whole. Raises OSError."""
        write_whole(folder / MANIFEST, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The one in `folder`. Raises ConfigError when there is none."""
        try:
            return cls.model_validate_json((folder / MANIFEST).read_text("utf-8"))
        except OSError as error:
            _refuse(f"{str(folder)!r}, whose {MANIFEST} can't be read: {error.strerror or error}")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "its content"
            _refuse(f"{str(folder)!r}, whose {MANIFEST} is damaged at {where}: {first['msg']}")


def write_shard(folder: Path, name: str, ids: Tensor, eos: int, dtype: str) -> Shard:
    """Documents that each end in `eos` (N,) as a shard, in files that are written whole. Raises OSError."""
    data = ids.numpy().astype(dtype).tobytes()
    index = Ragged.of(ids, eos).lengths.numpy().astype(numpy.int64)
    for suffix, content in ((".bin", data), (".idx", index.tobytes())):
        with whole(folder / (name + suffix), "wb") as file:
            file.write(content)
    mark = hashlib.sha256(data + index.tobytes()).hexdigest()
    return Shard(name=name, tokens=len(ids), documents=len(index), largest_id=int(ids.max()), digest=mark)


def open_shards(folder: Path, shards: Sequence[Shard], dtype: str, *, verify: bool) -> Ragged:
    """The documents of all `shards`, mapped. Raises ConfigError, with the file, where one is missing or of another
    size, or with `verify` of another content, than the manifest says."""
    parts: list[NDArray[Any]] = []
    lengths: list[NDArray[Any]] = []
    for shard in shards:
        ids = _mapped(folder / f"{shard.name}.bin", dtype, shard.tokens)
        index = _mapped(folder / f"{shard.name}.idx", "int64", shard.documents)
        if int(index.sum()) != shard.tokens or (verify and _digest(ids, index) != shard.digest):
            _refuse(f"{folder / shard.name}.bin, whose content isn't what {MANIFEST} says: damaged, or of other shards")
        parts.append(ids)
        lengths.append(index)
    row: Any = Mapped(parts, max(shard.largest_id for shard in shards))
    counts = torch.from_numpy(numpy.concatenate(lengths))
    return Ragged(row, counts.cumsum(0) - counts, counts)


class Mapped:
    """The ids of `parts` as one row, of which only what is asked for is read: (N,), int64 as it comes out."""

    def __init__(self, parts: Sequence[NDArray[Any]], largest_id: int):
        self.parts, self.largest_id = parts, largest_id
        self.firsts = numpy.cumsum([0, *map(len, parts)])

    def __len__(self) -> int:
        return int(self.firsts[-1])

    def __getitem__(self, index: Tensor | slice) -> Tensor:
        if isinstance(index, slice):
            index = torch.arange(*index.indices(len(self)))
        places = index.numpy()
        owners = numpy.searchsorted(self.firsts, places, side="right") - 1
        made = numpy.empty(places.shape, dtype=numpy.int64)
        for owner in numpy.unique(owners):
            here = owners == owner
            made[here] = self.parts[owner][places[here] - self.firsts[owner]]
        return torch.from_numpy(made)

    def max(self) -> int:
        """The largest id there is, as the manifest has it."""
        return self.largest_id


def _mapped(file: Path, dtype: str, count: int) -> NDArray[Any]:
    kind = numpy.dtype(dtype).newbyteorder("<")
    try:
        size = file.stat().st_size
        if size == count * kind.itemsize:
            return numpy.memmap(file, kind, "r", shape=(count,))
    except OSError as error:
        _refuse(f"{file}, which can't be read: {error.strerror or error}")
    _refuse(f"{file} of {size} bytes, and {MANIFEST} says {count * kind.itemsize}: damaged, or of other shards")


def _digest(*parts: NDArray[Any]) -> str:
    state = hashlib.sha256()
    for part in parts:
        for start in range(0, len(part), 1 << 22):
            state.update(part[start : start + (1 << 22)].tobytes())
    return state.hexdigest()


def _refuse(found: str) -> NoReturn:
    raise ConfigError([Problem("data.path", found, RULE, "python -m recipes.tokenize path=<a new folder>")])

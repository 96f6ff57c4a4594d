"""Checkpoints in parts: a folder to which every rank writes what it holds, whole or not at all, with their hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from builder.experiments.kept import remove

from .checkpoint import Damaged, read, write

REST = "rest.ckpt"
"""What isn't divided, with a word where a divided tensor belongs; and the hashes of the parts."""

_WORD = "in the parts: "


def write_shards(checkpoint: Mapping[str, Any], path: Path) -> None:
    """Writes the parts of all ranks, then what isn't divided, and moves the folder to `path`; every rank takes part."""
    draft = path.with_name(f".{path.name}.part")
    parts: dict[str, Tensor] = {}
    rest = _taken_out(checkpoint, "", parts)
    if dist.get_rank() == 0:
        remove(draft)  # what a kill left, of other ranks perhaps
        draft.mkdir(parents=True)
    dist.barrier()
    save(parts, checkpoint_id=draft)
    dist.barrier()
    if dist.get_rank() == 0:
        hashes = {file.name: _sha256(file) for file in sorted(draft.iterdir())}
        write({"rest": rest, "hashes": hashes}, draft / REST)
        old = path.with_name(f".{path.name}.old.part")
        if path.exists():
            path.rename(old)
        draft.rename(path)
        remove(old)
    dist.barrier()


def read_shards(path: Path, like: Mapping[str, Tensor] | None = None) -> dict[str, Any]:
    """What such a folder holds, every divided tensor whole and on the CPU. Raises Damaged.

    With `like` a tensor is divided as the one there under its path, or under that of what it belongs to.
    """
    rest = read_rest(path, verify=like is None)  # who chose it for several ranks has verified it
    metadata = FileSystemReader(path).read_metadata().state_dict_metadata
    parts = {key: _room(key, metadata[key], like or {}) for key in metadata}
    load(parts, checkpoint_id=path, no_dist=like is None)
    return _put_back(rest, parts)


def read_rest(path: Path, verify: bool = True) -> dict[str, Any]:
    """What isn't divided, and a word for each tensor that is; raises Damaged where a part isn't as it was written."""
    there = read(path / REST)
    for name, stated in there["hashes"].items() if verify else ():
        if not (path / name).is_file() or _sha256(path / name) != stated:
            raise Damaged(f"{path}: the checkpoint is damaged ({name} isn't as it was written); use another of the run")
    return there["rest"]


def _taken_out(node: Any, path: str, parts: dict[str, Tensor]) -> Any:
    """The same nest with a word in the place of each divided tensor, which goes to `parts` under its path."""
    if isinstance(node, DTensor):
        parts[path] = node
        return _WORD + path
    below = f"{path}." if path else ""
    if isinstance(node, dict):
        return {key: _taken_out(value, f"{below}{key}", parts) for key, value in node.items()}
    return [_taken_out(v, f"{below}{i}", parts) for i, v in enumerate(node)] if isinstance(node, list) else node


def _put_back(node: Any, parts: Mapping[str, Tensor]) -> Any:
    if isinstance(node, str) and node.startswith(_WORD):
        return parts[node.removeprefix(_WORD)]
    if isinstance(node, dict):
        return {key: _put_back(value, parts) for key, value in node.items()}
    return [_put_back(value, parts) for value in node] if isinstance(node, list) else node


def _room(key: str, said: Any, like: Mapping[str, Tensor]) -> Tensor:
    """A tensor to read into: of the moments of a parameter, under <its path>.<name>, as the parameter is."""
    place: Callable[[str], Any] = like.get
    found = place(key) if key in like else place(key.rpartition(".")[0])
    if isinstance(found, DTensor) and found.shape == said.size:
        return torch.zeros_like(found, dtype=said.properties.dtype)
    return torch.zeros(said.size, dtype=said.properties.dtype)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

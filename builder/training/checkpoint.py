"""Checkpoints: tensors and plain Python under the model's own names, with a sha256, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from builder.disk import room_for
from builder.errors import ArchlabError
from builder.experiments.kept import remove
from builder.spec import RunSpec
from builder.whole import whole

from .seal import Sealing, verify

_INSIDE = "model."
"""Where the LightningModule keeps the model; no key on disk carries it."""


class Damaged(ArchlabError):
    """A checkpoint that isn't as it was written."""


class AtomicIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there once it is whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write(checkpoint, Path(path))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read(Path(path))


def write(contents: dict[str, Any], path: Path) -> None:
    """Writes a checkpoint; whatever goes wrong, what was at `path` before is still there. Raises DiskFull, OSError."""
    size = 0
    with room_for(path, lambda: size), whole(path, "wb") as file:
        sealing = Sealing(file)
        torch.save(contents, sealing)  # type: ignore[arg-type]
        size = sealing.size
        sealing.seal()
        if path.is_dir():  # the parts of a run that was divided before
            remove(path)


def read(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint, on the CPU, no code run; raises ArchlabError when it is missing, or is Damaged."""
    if path.is_dir():
        from .shards import read_shards

        return read_shards(path)
    if not path.is_file():
        raise ArchlabError(f"{path}: no such checkpoint; there are: {', '.join(_beside(path)) or 'none'}")
    try:
        verify(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different type for each way a file can be damaged
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        there = ", ".join(name for name in _beside(path) if not path.samefile(path.with_name(f"{name}.ckpt")))
        others = f"use another one of the run: {there}" if there else "the run has no other"
        raise Damaged(f"{path}: the checkpoint is damaged ({reason}); {others}") from None


def glance(path: Path) -> dict[str, Any]:
    """What `read` says, without the tensors that lie in parts: who only chooses a checkpoint needs no room for them."""
    if not path.is_dir():
        return read(path)
    from .shards import read_rest

    return read_rest(path)


def _beside(path: Path) -> list[str]:
    """The names of the checkpoints in the folder of one."""
    return sorted(file.stem for file in path.parent.glob("*.ckpt") if file.exists())  # a link may lead nowhere


def pack(checkpoint: dict[str, Any], spec: RunSpec) -> None:
    """Gives a checkpoint the model's own names and the identity of its run."""
    checkpoint["state_dict"] = {key.removeprefix(_INSIDE): value for key, value in checkpoint["state_dict"].items()}
    checkpoint["config_hash"] = spec.hash


def unpack(checkpoint: dict[str, Any], spec: RunSpec) -> None:
    """Undoes `pack`; raises ArchlabError when the checkpoint belongs to another config."""
    belongs(checkpoint, spec)
    checkpoint["state_dict"] = {f"{_INSIDE}{key}": value for key, value in checkpoint["state_dict"].items()}


def belongs(checkpoint: dict[str, Any], spec: RunSpec) -> None:
    """Raises ArchlabError when a checkpoint was not written under this very config."""
    written = checkpoint.get("config_hash")
    if written != spec.hash:
        raise ArchlabError(f"the checkpoint was written under config {written}, and this run's config is {spec.hash}")

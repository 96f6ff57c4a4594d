"""Checkpoints: tensors and plain Python, under the model's own names, written whole or not at all."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import TorchCheckpointIO

from builder.errors import ArchlabError
from builder.spec import RunSpec
from builder.whole import whole

_INSIDE = "model."
"""Where the LightningModule keeps the model; no key on disk carries it."""


class AtomicIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place and moves it there once it is whole."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with whole(Path(path), "wb") as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        return read(Path(path))


def read(path: Path) -> dict[str, Any]:
    """The contents of a checkpoint, on the CPU, no code run; raises ArchlabError when it is missing or damaged."""
    if not path.is_file():
        there = sorted(file.stem for file in path.parent.glob("*.ckpt"))
        raise ArchlabError(f"{path}: no such checkpoint; there are: {', '.join(there) or 'none'}")
    try:
        if (part := zipfile.ZipFile(path).testzip()) is not None:  # torch itself doesn't look at the checksums
            raise ValueError(f"the checksum of {part} is wrong")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises a different type for each way a file can be damaged
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ArchlabError(f"{path}: the checkpoint is damaged ({reason}); use another one of the run") from None


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

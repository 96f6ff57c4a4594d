"""What a training step has room in: the device that the trainer asks for, as far as this machine shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from builder.division import Division

_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container is told that it may have less than the machine."""


@dataclass(frozen=True)
class Device:
    """Where one rank computes: its kind, its name in a sentence, and the bytes it has, or why nobody can tell."""

    kind: Literal["cpu", "cuda"]
    name: str
    memory: int | None
    why: str = ""


def device_of(trainer: Mapping[str, Any]) -> Device:
    """The device of one rank of these arguments of Lightning's Trainer; one that can't be seen counts as a CPU."""
    asked = str(trainer.get("accelerator", "auto"))
    gpu = torch.cuda.is_available()
    if (asked in ("gpu", "cuda") and not gpu) or asked not in ("gpu", "cuda", "cpu", "auto"):
        why = f"trainer.accelerator={asked}, and torch sees no such device here"
        return Device("cpu", f"the {asked}", None, why)
    if asked != "cpu" and gpu:
        return Device("cuda", torch.cuda.get_device_name(), torch.cuda.get_device_properties(0).total_memory)
    return _cpu(Division.of(trainer))


def memory() -> int | None:
    """Bytes of memory that this machine, or the container, has for all processes; None: it doesn't say."""
    found = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _LIMITS:
        with suppress(OSError, ValueError):  # "max": no limit
            found.append(int(path.read_text()))
    return min(found, default=None)


def _cpu(division: Division) -> Device:
    whole = memory()
    if whole is None:
        return Device("cpu", "the CPU", None, "this system doesn't say how much memory it has")
    beside = f", for {division.devices} ranks" if division.devices > 1 else ""
    return Device("cpu", f"this machine's memory{beside}", whole // division.devices)

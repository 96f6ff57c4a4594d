"""What the numbers were measured on: the processor, its threads, the device, and the versions that matter."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from builder.errors import ArchlabError
from builder.memory import memory

from .settings import Workload


def facts(work: Workload) -> dict[str, Any]:
    """The machine, in plain Python."""
    return {
        "device": work.device,
        "device_name": torch.cuda.get_device_name() if work.device == "cuda" else _cpu(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": work.threads,
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "torch": torch.__version__,
    }


def refuse_too_large(needed: int, device: str) -> None:
    """Raises ArchlabError when `needed` bytes are more than the device has at all."""
    there = torch.cuda.mem_get_info()[1] if device == "cuda" else memory()
    if there is not None and needed > there:
        raise ArchlabError(
            f"bench: weights, gradients and moments take {needed / 2**30:,.1f} GiB, and this machine's "
            f"{device} has {there / 2**30:,.1f} GiB; measure fewer layers, e.g. model.n_layers=2"
        )


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())

"""How the processes of a run divide its work, as the arguments of Lightning's Trainer say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_SHARDED = ("sharded", "fsdp", "modelparallel")
"""How the strategies begin that divide weights over ranks."""


@dataclass(frozen=True)
class Division:
    """How the work of a step is divided.

    devices     ranks on one machine
    data        ranks that read rows of their own
    shards      over how many ranks the weights are divided, and with them gradients and optimizer; 1: each has all
    tensor      over how many ranks each map is divided, beside that
    buckets     whether gradients lie in buckets that last, in which they are summed over ranks (DDP)
    experts     whether the experts of a mixture are divided whole and never gathered
    """

    devices: int = 1
    data: int = 1
    shards: int = 1
    tensor: int = 1
    buckets: bool = False
    experts: bool = False

    @classmethod
    def of(cls, trainer: Mapping[str, Any]) -> Division:
        """What these arguments of Lightning's Trainer ask for."""
        devices, nodes = _devices(trainer), int(trainer.get("num_nodes", 1))
        world = devices * nodes
        strategy = trainer.get("strategy") or "auto"
        knobs: Mapping[str, Any] = strategy if isinstance(strategy, Mapping) else {}
        kind = str(knobs.get("_target_", strategy)).rpartition(".")[2].lower()
        if not kind.startswith(_SHARDED):
            return cls(devices, world, buckets=world > 1)
        tensor = int(knobs.get("tensor_parallel_size", 1))
        asked = knobs.get("data_parallel_size", "auto")
        data = max(1, world // tensor) if asked == "auto" else int(asked)
        return cls(devices, data, data, tensor, experts=bool(knobs.get("expert_parallel")))

    def rows(self, whole: int) -> int:
        """The rows of one rank, of those of a step."""
        return max(1, whole // self.data)


def _devices(trainer: Mapping[str, Any]) -> int:
    """How many of a machine's devices are asked for."""
    asked = trainer.get("devices", "auto")
    if isinstance(asked, list | tuple):
        return len(asked)
    if isinstance(asked, str) and "," in asked:
        return len([part for part in asked.split(",") if part.strip()])
    if str(asked) in ("auto", "-1"):
        on_gpu = trainer.get("accelerator", "auto") != "cpu" and torch.cuda.is_available()
        return torch.cuda.device_count() if on_gpu else 1
    return int(asked)

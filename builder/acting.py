"""What sets runs of one hash apart: their callbacks, of which some watch and others change what comes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .spec import RunSpec

OURS = "builder.training.callbacks."
"""The room of callbacks that watch and save, and leave what is trained alone."""

THEIRS = ("lightning.pytorch.callbacks.", "pytorch_lightning.callbacks.")

WATCHERS = (
    *("ModelCheckpoint", "OnExceptionCheckpoint", "LearningRateMonitor", "DeviceStatsMonitor", "ThroughputMonitor"),
    *("ModelSummary", "RichModelSummary", "RichProgressBar", "TQDMProgressBar"),
)
"""Of Lightning's callbacks, those that do the same."""


def acting(callbacks: Mapping[str, Any]) -> dict[str, Any]:
    """The callbacks that may end a run early, or change its weights or its batches: all that aren't known to watch."""
    return {name: node for name, node in callbacks.items() if not _watches(node)}


def likeness(spec: RunSpec) -> str:
    """Equal for runs that come to the same: their hash, and the callbacks that act."""
    return " ".join([spec.hash, *([_told(found)] if (found := acting(spec.callbacks)) else [])])


def request(spec: RunSpec) -> str:
    """Equal for runs of which one is enough: their hash, and all callbacks, since what they watch is logged."""
    return f"{spec.hash} {_told(spec.callbacks)}"


def _watches(node: Any) -> bool:
    target = str(node.get("_target_")) if isinstance(node, Mapping) else ""
    return target.startswith(OURS) or (target.startswith(THEIRS) and target.rpartition(".")[2] in WATCHERS)


def _told(callbacks: Mapping[str, Any]) -> str:
    return json.dumps(callbacks, sort_keys=True, default=dict)

"""Whether a run that was disturbed ended as the one that was left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny_run import checkpoint, rows, same, summary

STATE = ("state_dict", "optimizer_states", "lr_schedulers", "global_step", "callbacks", "tallies", "window", "metrics")


def timeless(told: dict[str, Any]) -> dict[str, Any]:
    """Metrics without those that a clock decides."""
    return {name: value for name, value in told.items() if not name.startswith("perf/")}


def assert_same_run(path: Path, whole: Path) -> None:
    """Both are completed, with checkpoints, metrics and summary the same bit for bit; no line is missing or doubled."""
    for name in ("last", "best"):
        ours, theirs = checkpoint(path, name), checkpoint(whole, name)
        assert ours.keys() == theirs.keys()
        for key in STATE:
            one, other = ((timeless(held[key]) if key == "metrics" else held[key]) for held in (ours, theirs))
            assert same(one, other), (name, key)
    assert rows(path) == rows(whole)
    ours, theirs = summary(path), summary(whole)
    assert ours["status"] == "completed" and ours["reason"] is None
    assert ours["best"] == theirs["best"] and ours["routing"] == theirs["routing"] and ours["step"] == theirs["step"]
    assert timeless(ours["last"]) == timeless(theirs["last"])
    assert names(path) == names(whole)


def names(path: Path) -> tuple[list[str], int]:
    """What lies in the run folder and among its checkpoints, and how many of those are kept by step, whichever.

    No draft may be there at the end, and nothing that was set aside.
    """
    files = [file for place in (path, path / "checkpoints") for file in place.iterdir()]
    steps = [file for file in files if file.match("step-*.ckpt")]
    return sorted(str(file.relative_to(path)) for file in files if file not in steps), len(steps)

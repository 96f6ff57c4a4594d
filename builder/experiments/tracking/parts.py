"""What W&B keeps of a run on disk: a part for each start of the run, sent already or not, and the rows in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_PATIENCE = 120
"""Seconds that reading a part may take."""

_HEADER = 7  # bytes


@dataclass(frozen=True)
class Part:
    """One folder that W&B wrote: `<run folder>/wandb/[offline-]run-<date>_<time>-<id>`."""

    path: Path

    @property
    def id(self) -> str:
        """The id of the W&B run that it is a part of."""
        return self.path.name.partition("run-")[2].partition("-")[2]

    @property
    def started(self) -> str:
        """When it was begun, as text that sorts."""
        return self.path.name.partition("run-")[2].partition("-")[0]

    @property
    def offline(self) -> bool:
        """Whether nothing of it was sent while it was written."""
        return self.path.name.startswith("offline-")

    @property
    def log(self) -> Path:
        """The file that holds what was logged."""
        return self.path / f"run-{self.id}.wandb"

    @property
    def begun(self) -> bool:
        """Whether W&B has written anything of it but the header of its file."""
        return self.log.is_file() and self.log.stat().st_size > _HEADER

    @property
    def sent(self) -> bool:
        """Whether `wandb sync` has sent all of it."""
        return self._seal.exists()

    def mark_sent(self) -> None:
        """Marks it as sent, as `wandb sync` does."""
        self._seal.touch()

    @property
    def _seal(self) -> Path:
        return self.log.with_name(f"{self.log.name}.synced")

    def last_step(self) -> int | None:
        """The last optimizer step that it has a row of, 0 when it has none; None when it can't be read."""
        command = [sys.executable, "-m", "wandb", "leet", "inspect", str(self.path), "--json"]
        quiet = os.environ | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
        try:
            said = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=_PATIENCE)
            records = [json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")]
        except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
            return None
        if said.returncode != 0:
            return None
        return max((_step(record) for record in records if record.get("type") == "history"), default=0)


def parts(folder: Path) -> list[Part]:
    """The parts in a run folder that hold anything, in the order in which they were begun."""
    return [part for part in starts(folder) if part.begun]


def starts(folder: Path) -> list[Part]:
    """The parts in a run folder in the order in which they were begun, those that nothing was written to included."""
    found = [Part(path) for path in folder.glob("wandb/*run-*") if path.is_dir() and not path.is_symlink()]
    return sorted((part for part in found if part.started), key=lambda part: part.started)


def recorded(found: list[Part], otherwise: int) -> int:
    """The last step that any of the parts has a row of; `otherwise` where one of them can't be read."""
    steps = [part.last_step() for part in found]
    return otherwise if None in steps else max((step for step in steps if step is not None), default=0)


def of_its_own_second(found: list[Part]) -> None:
    """Waits until a new part gets a folder of its own: W&B names it by the second, and loses what it would write into
    one that is there."""
    while any(part.started == time.strftime("%Y%m%d_%H%M%S") for part in found):
        time.sleep(0.05)


def _step(record: dict[str, Any]) -> int:
    return int(record["history"]["item"].get("step", 0))

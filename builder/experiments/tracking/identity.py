"""Who a run is in W&B: its id, which it keeps for life, its name, and the group that it stands in."""

from __future__ import annotations

import json
import os
import secrets
import socket
import string
from dataclasses import asdict, dataclass, field
from pathlib import Path

from builder.spec import RunSpec
from builder.whole import write_whole

KEPT = Path("wandb", "run.json")
"""Where in a run folder the identity lies."""

_SIGNS = string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Identity:
    """The W&B run of a run folder, and the process that writes to it."""

    id: str
    project: str
    entity: str | None = None
    pid: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)

    @classmethod
    def of(cls, folder: Path) -> Identity | None:
        """The one that a run folder keeps; None where it keeps none, or one that can't be read."""
        try:
            return cls(**json.loads((folder / KEPT).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @classmethod
    def new(cls, project: str, entity: str | None) -> Identity:
        """One of its own, or the one that a W&B agent has given to the run that it started."""
        given = os.environ.get("WANDB_RUN_ID") if "WANDB_SWEEP_ID" in os.environ else None
        return cls(given or "".join(secrets.choice(_SIGNS) for _ in range(8)), project, entity)

    def keep(self, folder: Path) -> None:
        """Writes it into a run folder, for those that go on with the run."""
        path = folder / KEPT
        path.parent.mkdir(exist_ok=True)
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")

    @property
    def alive(self) -> bool | None:
        """Whether the process that writes to the run is there; None: it is, or was, on another machine."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def group_of(spec: RunSpec) -> str:
    """<experiment>/<sweep> for a job of a sweep, else the experiment."""
    sweep = (spec.output.name or "").rpartition("/")[0]
    return "/".join(filter(None, (spec.output.experiment, sweep)))


def name_of(spec: RunSpec, folder: Path) -> str:
    """<sweep>/<job> for a job of a sweep, else the name of the run folder."""
    return spec.output.name or folder.name

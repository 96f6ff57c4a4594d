"""Runs that were logged offline, sent to W&B: all parts of a run in the order of their starts."""

from __future__ import annotations

import glob
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from builder.errors import ArchlabError
from builder.experiments.folder import RunFolder

from .identity import Identity
from .parts import Part, parts

QUIET = 600
"""Seconds without a new row after which a run on another machine, which says that it is running, is taken for dead."""

RETRIES = {"WANDB_X_GRAPHQL_RETRY_MAX": "1", "WANDB_X_GRAPHQL_RETRY_WAIT_MAX_SECONDS": "1"}
"""W&B's own patience with a server that doesn't answer is minutes for each run; what isn't sent now is sent later."""


AT_ONCE = 4
"""Runs that are sent at the same time."""


@dataclass(frozen=True)
class Fate:
    """What became of a run: sent now, sent `before`, or why not."""

    folder: Path
    parts: int
    before: bool = False
    fault: str = ""

    @property
    def there(self) -> bool:
        """Whether W&B has all of it by now."""
        return not self.fault


def find(runs: str) -> list[Path]:
    """The run folders in or below `runs`, a folder or a pattern, that have offline parts; raises ArchlabError."""
    places = [Path(place) for place in glob.glob(runs, recursive=True)]
    logs = (path for place in places for path in place.rglob("wandb/offline-run-*") if not path.is_symlink())
    folders = sorted({path.parent.parent for path in logs})
    if not folders:
        what = "no offline run in or below it" if places else "nothing there"
        raise ArchlabError(f"runs: found {runs!r}, and {what}; give a folder, or a pattern, e.g. runs=outputs/main/*")
    return folders


def upload(folders: Iterable[Path]) -> list[Fate]:
    """Sends what isn't sent yet, and says what became of each run; a run under way is left alone.

    The first one goes ahead: where W&B can't be reached at all, the others aren't tried.
    """
    fates = {folder: _before(folder) for folder in folders}
    waiting = [folder for folder, fate in fates.items() if fate is None]
    for folder in waiting[:1]:
        fates[folder] = first = _send(folder)
        if any(sign in first.fault for sign in _NOBODY):
            fates |= {other: Fate(other, len(_offline(other)), fault=first.fault) for other in waiting}
            waiting = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        fates |= zip(waiting[1:], pool.map(_send, waiting[1:]), strict=True)
    return [fate for fate in fates.values() if fate is not None]


def _offline(folder: Path) -> list[Part]:
    return [part for part in parts(folder) if part.offline]


def _before(folder: Path) -> Fate | None:
    """What is known of a run without sending anything; None: it is to be sent."""
    offline = _offline(folder)
    if not offline:
        return Fate(folder, 0, fault="W&B had written nothing when it was killed; resume it, or see its metrics.jsonl")
    if all(part.sent for part in offline):
        return Fate(folder, len(offline), before=True)
    fault = _under_way(folder, offline)
    return Fate(folder, len(offline), fault=fault) if fault else None


def _send(folder: Path) -> Fate:
    unsent = left = [part for part in _offline(folder) if not part.sent]
    said = ""
    while left:
        said = _sync(left)
        cut = [part for part in left if f'{part.path.name}": {_CUT}' in said]  # its path is relative or not
        for part in cut:  # a kill has cut its last record, and all that is before it was sent
            part.mark_sent()
        left = [part for part in left if not part.sent]  # the command ends with 0 either way: its mark is what counts
        if not cut:
            break
    return Fate(folder, len(unsent), fault=_reason(said) if left else "")


def _under_way(folder: Path, offline: Sequence[Part]) -> str:
    """Why a run can't be sent yet; empty when nobody writes to it."""
    if RunFolder(folder).summary().get("status") != "running":
        return ""
    identity = Identity.of(folder)
    alive = identity.alive if identity is not None else None
    latest = max(part.log.stat().st_mtime for part in offline)
    if alive is False or (alive is None and time.time() - latest > QUIET):
        return ""  # it was killed
    return "it is under way; once it has ended, all of it can be sent"


def _sync(unsent: Sequence[Part]) -> str:
    """Has W&B send the parts, and returns what it said."""
    with tempfile.TemporaryDirectory() as logs:
        environment = RETRIES | {key: value for key, value in os.environ.items() if key not in _THE_ASKERS}
        command = [sys.executable, "-m", "wandb", "sync", *(str(part.path.resolve()) for part in unsent)]
        ended = subprocess.run(
            command, env=environment | {"WANDB_DIR": logs}, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
    return ended.stdout + ended.stderr


_THE_ASKERS = {"WANDB_MODE", "WANDB_SILENT", "WANDB_QUIET", "WANDB_SERVICE"}
"""What is set for the process that asks, and no business of the one that sends."""

_CUT = "the file ends with an incomplete record"
_LOGIN = "not logged in; `wandb login` once, or set WANDB_API_KEY"
_NOBODY = (_LOGIN, "giving up after")


def _reason(said: str) -> str:
    """The first fault in W&B's output."""
    lines = re.findall(r"^(?:wandb:\s*)?(?:ERROR|Error:)\s*(.*)", said, re.MULTILINE)
    faults = [line for line in lines if "detailed error logs" not in line]
    return _LOGIN if any("No API key" in line for line in faults) else (faults or ["W&B does not say why"])[0]

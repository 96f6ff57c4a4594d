"""SLURM: a job whose time is up goes back into the queue, and what it had begun goes on when it starts again."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from builder.errors import ArchlabError
from builder.spec import RunSpec

from .folder import RunFolder


def job() -> str | None:
    """The job that this process is part of, an element of an array as <array>_<task>; None outside of SLURM."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ.get('SLURM_ARRAY_TASK_ID')}" if array else os.environ.get("SLURM_JOB_ID")


def mark() -> dict[str, str]:
    """What a run writes down of the job that it runs in."""
    number = job()
    return {} if number is None else {"slurm_job": number}


def requeue() -> str:
    """Puts the job back into the queue, and says so, or why that failed; SLURM may end the process soon after."""
    command = ["scontrol", "requeue", job() or ""]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        fault = "" if done.returncode == 0 else done.stderr.strip() or f"exit code {done.returncode}"
    except OSError as error:
        fault = error.strerror or str(error)
    said = " ".join(command)
    return f"{said} failed ({fault}): submit it again" if fault else f"{said}: it goes on when the job starts again"


def begun(spec: RunSpec) -> RunFolder | None:
    """The run of this very config that this job had begun before it went back into the queue; None: it is a new one."""
    number = job()
    if number is None or os.environ.get("SLURM_RESTART_COUNT", "0") == "0":
        return None
    experiment = Path(spec.output.root, spec.output.experiment)
    places = [experiment / spec.output.name] if spec.output.name else sorted(experiment.glob("*/"))
    for place in places:
        said: dict[str, Any] = {}
        with suppress(ArchlabError):  # the damaged summary of another run is none of this one's
            said = RunFolder(place).summary()
        if (said.get("slurm_job"), said.get("hash")) == (number, spec.hash):
            return RunFolder(place)
    return None

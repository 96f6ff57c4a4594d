"""The process of one job: it trains the run, or goes on with it, and leaves its log, its state and its traceback."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from typing import Any

from builder.cli import STOPPED
from builder.errors import ArchlabError, ConfigError
from builder.experiments.folder import RunFolder

from .gpus import Request, taken
from .locks import Taken, held
from .plan import in_one_line

LOG = "log.txt"
TRACEBACK = "traceback.txt"
WAIT = 5.0
"""Seconds in which a job whose sweep was killed ends by itself: so long another one waits for its folder."""


ELSEWHERE = 75
"""The exit code of a job that another process runs, of which nothing is touched: EX_TEMPFAIL of sysexits.h."""


def run(config: dict[str, Any], path: str, planned: str, gpus: Request | None) -> None:
    """Trains the run of `config` in the folder `path` on GPUs of its own; exits with 0, 1, STOPPED or ELSEWHERE."""
    from builder.experiments import together

    together.watch_the_parent()
    folder = RunFolder(path)
    with open(folder.path / LOG, "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(_code(config, folder, planned, gpus))


def _code(config: dict[str, Any], folder: RunFolder, planned: str, gpus: Request | None) -> int:
    from builder.experiments.train import Refused

    try:
        with held(folder.path.parent, folder.path.name, WAIT), taken(gpus):
            _train(config, folder, planned)
    except Taken:
        print(f"error: {folder.path}: another process runs this job; wait for it, or end it", file=sys.stderr)
        return ELSEWHERE
    except ArchlabError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.exit_code != STOPPED:
            _failed(folder, in_one_line(error), refused=isinstance(error, Refused | ConfigError))
        return error.exit_code
    except KeyboardInterrupt:
        folder.summarise("interrupted", reason="stopped before its first step")
        return STOPPED
    except BaseException as error:
        traceback.print_exc()
        _failed(folder, f"{type(error).__name__}: {error}")
        return 1
    return 0


def _train(config: dict[str, Any], folder: RunFolder, planned: str) -> None:
    from rich.console import Console

    from builder import load
    from builder.experiments.train import resume, train

    if folder.summary().get("status") == "completed":  # by another process, meanwhile
        return
    spec = load(config)
    if spec.hash != planned:
        raise ArchlabError(
            f"the config has the hash {spec.hash} here, and had {planned} where the sweep was planned: what it depends "
            "on differs between the machines (a GPU: state trainer=gpu), or files of conf/ changed since"
        )
    if folder.config.exists():
        resume(folder.path, Console())
    else:
        train(spec, Console())


def _failed(folder: RunFolder, reason: str, refused: bool = False) -> None:
    """Writes why a job failed; `refused`: for what was asked for, so that it would again."""
    with suppress(OSError):  # on a full disk the log has said it
        folder.summarise("failed", reason=reason, refused=refused)
        folder.write(TRACEBACK, traceback.format_exc())

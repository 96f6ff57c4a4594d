"""The process of one job: it trains the run, or goes on with it, and leaves its log, its state and its traceback."""

from __future__ import annotations

import fcntl
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builder.cli import STOPPED
from builder.errors import ArchlabError
from builder.experiments.folder import RunFolder

LOG = "log.txt"
TRACEBACK = "traceback.txt"
WAIT = 5.0
"""Seconds in which a job whose sweep was killed ends by itself: so long another one waits for its folder."""


class Elsewhere(ArchlabError):
    """Another process runs this job: nothing of it is touched."""

    exit_code = 75  # EX_TEMPFAIL of sysexits.h


def run(config: dict[str, Any], path: str, planned: str) -> None:
    """Trains the run of `config` in the folder `path`; exits with 0, 1, STOPPED or that of Elsewhere."""
    from builder.experiments import together

    together.watch_the_parent()
    folder = RunFolder(path)
    with open(folder.path / LOG, "a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.exit(_code(config, folder, planned))


def _code(config: dict[str, Any], folder: RunFolder, planned: str) -> int:
    try:
        with _alone(folder.path):
            _train(config, folder, planned)
    except Elsewhere as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except ArchlabError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.exit_code != STOPPED:
            _failed(folder, str(error))
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


def _failed(folder: RunFolder, reason: str) -> None:
    folder.write(TRACEBACK, traceback.format_exc())
    folder.summarise("failed", reason=reason)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Holds the job against other processes; raises Elsewhere when one of them has it."""
    locks = path.parent / ".locks"
    locks.mkdir(exist_ok=True)
    with open(locks / path.name, "w") as lock:
        ends = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() > ends:
                    raise Elsewhere(f"{path}: another process runs this job; wait for it, or end it") from None
                time.sleep(0.2)
        yield

"""One job of a sweep, as a launcher runs it: in a process of its own, whose end, whatever it is, becomes its state."""

from __future__ import annotations

import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from builder.compose import plain
from builder.errors import ArchlabError
from builder.experiments.folder import RunFolder

from . import plan
from .gpus import Request
from .locks import held
from .outcome import DONE
from .process import ELSEWHERE, LOG, STOPPED, run
from .spec import SweepSpec

WARM = ["builder.sweeps.process", "builder.experiments.train", "builder.training.fit"]
"""What the process that the jobs are forked from has imported: seconds that each of them would take."""

LEFT = "left to the process that runs it"
"""What became of a job whose process ended with ELSEWHERE."""

SAID = ("completed", "failed", "interrupted")
"""The states that a process leaves when it has ended by itself."""

LOOK = 1.0
"""Seconds between two looks at a run that may be pruned."""

STOP = "stopped"
"""The file that a sweep with failed=stop leaves in its folder, once a job has failed."""


@dataclass(frozen=True)
class Job:
    """What a launcher hands over: the job's folder, its config, its point in the plan, and what the sweep asked for."""

    folder: RunFolder
    config: dict[str, Any]
    point: plan.Planned
    of: int
    spec: SweepSpec

    @classmethod
    def read(cls, config: DictConfig) -> Job:
        """The job that a config names: output.name is `<sweep>/<job>`. Raises ArchlabError where no plan has it."""
        content = plain(config)
        output = content["output"]
        path = Path(output["root"], output["experiment"], output["name"])
        kept = plan.read(path.parent)
        jobs = [point for point in plan.points_of(kept) if point.job is not None]
        point = next(point for point in jobs if str(point.job) == path.name)
        return cls(RunFolder(path), content, point, len(jobs), SweepSpec.model_validate(kept["spec"]))

    @property
    def stop(self) -> Path:
        """The file by which a sweep is asked to end."""
        return self.folder.path.parent / STOP


def launched(config: DictConfig) -> str:
    """Runs a job and returns its state; nothing that happens to it is raised.

    Where the sweep itself is asked to stop, by Ctrl-C or SIGTERM, the job writes its checkpoint first, and
    KeyboardInterrupt is raised.
    """
    job = Job.read(config)
    name = f"job {job.point.job} of {job.of}"
    status = job.folder.summary().get("status")
    if status in DONE:
        print(f"{name}: {status} before", flush=True)
        return status
    if job.stop.exists():
        print(f"{name}: not started, another job failed", flush=True)
        return "not started"
    print(f"{name}: {' '.join(job.point.apart)}", flush=True)
    started = time.monotonic()
    try:
        status, asked = _in_a_process(job)
        if status == "failed" and job.spec.failed == "stop":
            job.stop.touch()
    except Exception as error:  # Hydra would keep it to itself
        reason = str(error) if isinstance(error, ArchlabError) else f"{type(error).__name__}: {error}"
        reason = f"{job.folder.path} can't be written ({error.strerror})" if isinstance(error, OSError) else reason
        with suppress(OSError):
            job.folder.summarise("failed", reason=reason, refused=False)
        print(f"{name}: failed: {reason}", flush=True)
        return "failed"
    print(f"{name}: {_told(job.folder, status)} in {time.monotonic() - started:.0f} s", flush=True)
    if asked:
        raise KeyboardInterrupt
    return status


def _in_a_process(job: Job) -> tuple[str, bool]:
    """Trains a job in a process of its own; returns what became of it, and whether the sweep was asked to stop."""
    job.folder.path.mkdir(parents=True, exist_ok=True)
    gpus = Request.of(job.config["trainer"])
    process = _forking().Process(target=run, args=(job.config, str(job.folder.path), job.point.hash, gpus))
    watch, before = _watch(job), _written(job)
    pruned = None
    with _listening(process) as asked:
        _start(process)
        while process.is_alive():
            process.join(LOOK if watch else None)
            pruned = pruned or (watch() if watch else None)
            if pruned and process.is_alive():
                process.terminate()
                process.join()
        if process.exitcode == ELSEWHERE:
            return LEFT, bool(asked)
        with held(job.folder.path.parent, job.folder.path.name, math.inf):
            pass  # its server may have died before it, of a signal to both, and left it to write its checkpoint
    if pruned and process.exitcode == STOPPED:
        job.folder.summarise("pruned", reason=pruned)
        return "pruned", bool(asked)
    return _status(job, process.exitcode or 0, _written(job) != before, bool(asked)), bool(asked)


def _start(process: Any) -> None:
    try:
        process.start()
    except (OSError, EOFError) as error:
        why = f"no process could be started for it ({error or type(error).__name__})"
        raise ArchlabError(f"{why}: the machine may be out of memory, or of processes") from None


def _written(job: Job) -> tuple[int, int] | None:
    """Which summary.json there is: another one after each word of a process."""
    try:
        there = (job.folder.path / "summary.json").stat()
    except FileNotFoundError:
        return None
    return there.st_ino, there.st_mtime_ns


def _watch(job: Job) -> Callable[[], str | None] | None:
    """Who ends the job early, where a search prunes."""
    search = job.spec.search
    if search is None or search.prune is None or job.point.trial is None:
        return None
    from .search import Search

    return Search(search, job.folder.path.parent).watch(job.point.trial, job.folder.path)


def _forking() -> Any:
    """Processes forked from one that has the imports; where there are no forks, each imports for itself."""
    methods = multiprocessing.get_all_start_methods()
    method = "forkserver" if "forkserver" in methods else "spawn"
    if multiprocessing.get_start_method(allow_none=True) not in (None, *methods):  # a worker of loky, whose own it is
        multiprocessing.set_start_method(method, force=True)
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(WARM)
    return context


@contextmanager
def _listening(process: Any) -> Iterator[list[int]]:
    """Which signals there were. SIGTERM, as a scheduler sends it, is passed on, so that the job can write a checkpoint;
    the terminal has sent Ctrl-C to the job too."""
    asked: list[int] = []

    def hear(number: int, frame: Any) -> None:
        asked.append(number)
        if number == signal.SIGTERM:
            with suppress(ProcessLookupError, AttributeError):  # it has ended, or not begun
                process.terminate()

    try:
        before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # no main thread: then signals aren't this one's to take
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(job: Job, code: int, wrote: bool, asked: bool) -> str:
    """What became of a job; what its process couldn't write any more, or never wrote, is written here."""
    status = job.folder.summary().get("status")
    if status in SAID and (wrote or (code, status) == (0, "completed")):  # another process may have completed it
        return status
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    hint = ": most often the machine ran out of memory" if -code == signal.SIGKILL else f"; see {LOG}"
    status = "interrupted" if asked else "failed"
    job.folder.summarise(status, reason=f"its process {how} without a word{hint}", refused=False)
    return status


def _told(folder: RunFolder, status: str) -> str:
    said = folder.summary()
    if status == LEFT:
        return status
    if status != "completed":
        return f"{status}: {said['reason']}" if said.get("reason") else status
    best = said.get("best") or {}
    return f"completed, {', '.join(f'{key} {value:.4g}' for key, value in best.items() if key != 'step')}"

"""A sweep from its words to its table: plan, launch, outcome; or what is missing of an earlier one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.utils import JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, open_dict, read_write
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from builder.cli import STOPPED
from builder.compose import adapt
from builder.errors import ArchlabError, ConfigError, Problem
from builder.load import read as read_section

from . import outcome, plan, render, searched
from .axes import points, said
from .composer import Composer
from .costs import costed
from .launched import STOP
from .locks import FOLDER, SWEEP, Taken, held
from .spec import SweepSpec

OWN = ("sweep", "sweep@hydra.sweeper")
"""The word that chooses a file of conf/sweep, as typed and as Hydra hands it on."""


def sweep(
    given: dict[str, Any], words: Sequence[str], config: DictConfig, loader: ConfigLoader, launcher: Launcher
) -> None:
    """Plans and runs a sweep; ends the process with 1 where not all that was asked for was run, 130 on Ctrl-C."""
    try:
        if not _swept(given, words, config, loader, launcher):
            sys.exit(1)
    except ArchlabError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(STOPPED)


def _swept(
    given: dict[str, Any], words: Sequence[str], config: DictConfig, loader: ConfigLoader, launcher: Launcher
) -> bool:
    """Whether all points could be run, and were."""
    console = Console()
    typed = [word.lstrip("+") for word in words if word.lstrip("+").partition("=")[0] not in OWN]
    spec = _read(given)
    if spec.resume:
        folder = _old(spec, typed)
        with open_dict(config), read_write(config):
            config.hydra.sweep.dir = str(folder)  # where the launcher makes a folder before it has seen a job
        spec, typed = _kept(folder)
        with _alone(folder) if spec.search else nullcontext():  # jobs are shared by processes, trials are not
            return _run(spec, typed, folder, config, loader, launcher, console, planned=True)
    folder = Path(config.hydra.sweep.dir)
    with _claimed(folder):
        return _run(spec, typed, folder, config, loader, launcher, console, planned=False)


def _run(
    spec: SweepSpec,
    typed: list[str],
    folder: Path,
    config: DictConfig,
    loader: ConfigLoader,
    launcher: Launcher,
    console: Console,
    planned: bool,
) -> bool:
    composer = Composer(loader, config.hydra.job.config_name)
    launch = partial(_launch, folder, launcher)
    if spec.search is None and not planned:
        _plan(spec, typed, folder, composer, console)
    if spec.dry:
        return all(point.status != "invalid" for point in plan.points_of(plan.read(folder)))
    try:
        launch() if spec.search is None else searched.run(spec, typed, folder, composer, launch, console)
    finally:
        right = (folder / plan.FILE).exists() and _told(folder, console)
    return right


def _told(folder: Path, console: Console) -> bool:
    """Writes and prints what became of a sweep; whether all of it was run."""
    found = outcome.outcomes(folder, plan.points_of(plan.read(folder)))
    console.print(outcome.render(folder, found))
    for line in outcome.commands(folder, found):
        console.out(line, highlight=False)
    try:
        outcome.write(folder, found)
    except OSError as error:
        print(f"error: {folder / 'jobs.json'} can't be written ({error.strerror})", file=sys.stderr)
        return False
    return outcome.right(found)


def _read(given: dict[str, Any]) -> SweepSpec:
    try:
        return read_section(SweepSpec, given)
    except ConfigError as error:
        placed = [Problem(f"sweep.{p.path}", p.found, p.rule, p.fix) for p in error.problems]
        raise ConfigError(placed) from None


def _plan(spec: SweepSpec, words: list[str], folder: Path, composer: Composer, console: Console) -> None:
    """Plans a sweep into its folder, and prints the plan; raises ArchlabError where it isn't to be launched."""
    made = points(words, spec, composer.holds)
    with _progress("planning", len(made), console) as tell:
        planned = plan.make(folder.name, made, composer.compose, tell)
    with _progress("forecasting", len(planned.jobs), console) as tell:
        planned = costed(planned, tell)
    planned.write(folder, words=words, spec=spec.model_dump(mode="json"))
    render.write(planned, folder)
    console.print(render.render(planned))
    console.out(f"plan {folder / 'plan.md'}", highlight=False)
    invalid = len(planned.of("invalid"))
    if invalid and spec.invalid == "stop":
        raise ArchlabError(f"sweep.invalid=stop: {invalid} points are invalid, so nothing was launched")
    if not planned.jobs:
        raise ArchlabError("no point of the sweep can run; the plan says why")


def _kept(folder: Path) -> tuple[SweepSpec, list[str]]:
    """What an earlier sweep was asked for: its spec, and the words of its command line."""
    content = plan.read(folder)
    return read_section(SweepSpec, content["spec"] | {"dry": False}), content["words"]


def _old(spec: SweepSpec, words: list[str]) -> Path:
    """The folder of a sweep that is to be completed: it has its plan, and takes no other."""
    asked = [name for name in ("product", "paired", "listed", "conditional", "search") if getattr(spec, name)]
    if words or asked:
        rule = "what is missing of a sweep is run as it was planned"
        fix = f"-m sweep.resume={spec.resume} alone, or a new sweep"
        raise ConfigError([Problem("sweep.resume", f"{' '.join([*words, *asked])} beside it", rule, fix)])
    folder = Path(str(spec.resume))
    plan.read(folder)
    (folder / STOP).unlink(missing_ok=True)
    return folder


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Holds a sweep against other processes; raises ArchlabError when one has it."""
    try:
        with held(folder, SWEEP, wait=0):
            yield
    except Taken:
        rule = f"choose another folder, or go on with it once that has ended: sweep.resume={folder}"
        raise ArchlabError(f"hydra.sweep.dir: another sweep is at work in {folder}; {rule}") from None


@contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Makes the folder of a new sweep, which no other one has or gets; an empty one is not left behind."""
    try:
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArchlabError(
            f"hydra.sweep.dir: {path} can't be made ({error.strerror}); choose another output.root"
        ) from None
    try:
        with _alone(path):
            if any(file.name != FOLDER for file in path.iterdir()):
                rule = f"choose another one, or go on with a sweep: sweep.resume={path}"
                raise ArchlabError(f"hydra.sweep.dir: {path} holds something already; {rule}")
            yield
    finally:
        if path.is_dir() and {file.name for file in path.iterdir()} <= {FOLDER}:
            shutil.rmtree(path, ignore_errors=True)


def _launch(folder: Path, launcher: Launcher) -> None:
    """Hands the jobs that are not completed to the launcher, all at once."""
    place = folder if len(folder.parts) > 2 else folder.resolve()
    batch = []
    for point in plan.points_of(plan.read(folder)):
        if point.job is not None and outcome.status_of(folder, point.job) not in outcome.DONE:
            number = str(point.job)
            own = {"output.root": str(place.parent.parent), "output.experiment": place.parent.name}
            own |= {"output.name": f"{place.name}/{number}"}
            hydra = {"hydra.sweep.dir": str(place), "hydra.sweep.subdir": number}
            texts = [*point.overrides, *(f"{key}={said(value)}" for key, value in own.items())]
            places = [f"{key}={said(value)}" for key, value in hydra.items()]
            batch.append([*adapt(texts, search=False), *places])
    for ended in (launcher.launch(batch, initial_job_idx=0) or ()) if batch else ():
        if ended.status is JobStatus.FAILED:  # what a job raises, Hydra keeps to itself
            error = ended._return_value
            print(f"error: {' '.join(ended.overrides or ())}: {type(error).__name__}: {error}", file=sys.stderr)


@contextmanager
def _progress(what: str, total: int, console: Console) -> Iterator[Callable[[], None]]:
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)

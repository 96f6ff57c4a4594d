"""A sweep whose points a search chooses: ask, judge, launch, tell, until all trials are spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from builder.errors import ConfigError, Problem

from . import outcome, plan
from .axes import Point, points
from .composer import Composer
from .render import refusals
from .search import Search
from .spec import SweepSpec


def run(
    spec: SweepSpec, words: list[str], folder: Path, composer: Composer, launch: Callable[[], None], console: Console
) -> None:
    """Runs a search in `folder`, or goes on with the one there; `launch` runs what the plan has and isn't done.

    A point that fails the checklist is drawn again; one that was run before is told what that gave.
    """
    assert spec.search is not None
    fixed = _fixed(words, spec)
    there = (folder / plan.FILE).exists()
    planned = plan.points_of(plan.read(folder)) if there else ()
    search = Search(spec.search, folder)
    if there:
        launch()
        _tell(search, planned, folder)
    while search.left > 0:
        asked = search.ask()
        chosen = plan.make(folder.name, [fixed + point for _, point in asked], composer.compose, lambda: None)
        new = [replace(p, trial=number) for p, (number, _) in zip(chosen.points, asked, strict=True)]
        planned = _joined(planned, new)
        plan.Plan(folder.name, planned, {}).write(folder, words=words, spec=spec.model_dump(mode="json"))
        for line in refusals(point for point in planned[-len(new) :] if point.status == "invalid"):
            console.print(line, style="yellow")
        launch()
        _tell(search, planned[-len(new) :], folder)


def _joined(before: tuple[plan.Planned, ...], new: list[plan.Planned]) -> tuple[plan.Planned, ...]:
    """All points so far, numbered; a new one that equals an earlier one becomes its duplicate."""
    known = {point.asks for point in before if point.status == "planned"}
    again = {"status": "duplicate", "job": None}
    joined = [replace(p, **again) if p.status == "planned" and p.asks in known else p for p in new]  # type: ignore[arg-type]
    return plan.numbered(plan.Plan("", (*before, *joined), {})).points


def _tell(search: Search, told: tuple[plan.Planned, ...], folder: Path) -> None:
    for point in told:
        job = point.same_as if point.job is None else point.job
        assert point.trial is not None
        status = point.status if job is None else outcome.status_of(folder, job)
        search.tell(point.trial, status, folder / str(job))


def _fixed(words: list[str], spec: SweepSpec) -> Point:
    """What all points share; raises ConfigError where the command line has axes, or sets what is sought."""
    made = points(words, SweepSpec(), lambda *_: False)
    if len(made) > 1:
        rule = "a search chooses its points itself: the command line states what they share"
        raise ConfigError([Problem("sweep.search", " ".join(words), rule, "put the axes into sweep.search.space")])
    assert spec.search is not None
    twice = [key for key, _ in made[0] if key in spec.search.space]
    if twice:
        raise ConfigError(
            [
                Problem(
                    f"sweep.search.space.{twice[0]}",
                    "a value on the command line too",
                    "one of the two",
                    f"leave out {twice[0]}=...",
                )
            ]
        )
    return made[0]

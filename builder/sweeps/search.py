"""A search: Optuna asks for points, the sweep runs them, and what they reached is told; all of it on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from builder.errors import ArchlabError, ConfigError, Problem, nearest
from builder.experiments.metrics import read_metrics

from .axes import Point, said
from .spec import SearchSpec

MOST = 10
"""For each trial that is asked for, at most so many points are drawn: where nearly all are invalid, it ends."""

JOURNAL = "search.journal"
"""Optuna's own record, in the folder of the sweep: a search that was stopped goes on from it."""


class Search:
    """The study of a sweep: it lies in its folder, so that the processes of its jobs share it.

    Raises ConfigError where the space can't be searched, ArchlabError where Optuna isn't installed.
    """

    def __init__(self, spec: SearchSpec, folder: Path):
        optuna = _optuna()
        self.spec = spec
        self._distributions = {key: _distribution(key, value) for key, value in spec.space.items()}
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        pruners = {"median": optuna.pruners.MedianPruner, "hyperband": optuna.pruners.HyperbandPruner}
        backend = optuna.storages.journal.JournalFileBackend(str(folder / JOURNAL))
        self._study = optuna.create_study(
            storage=optuna.storages.JournalStorage(backend),
            study_name=folder.name,
            pruner=pruners[spec.prune]() if spec.prune else optuna.pruners.NopPruner(),
            load_if_exists=True,
        )
        before = len(self._study.trials)  # so that a search that goes on doesn't draw again what it drew
        self._study.sampler = samplers[spec.sampler](seed=spec.seed + before)

    @property
    def left(self) -> int:
        """How many points are still to be chosen: invalid ones don't count, up to a limit."""
        trials = self._study.trials
        tried = sum("invalid" not in trial.user_attrs for trial in trials)
        return min(self.spec.trials - tried, MOST * self.spec.trials - len(trials))

    def ask(self) -> list[tuple[int, Point]]:
        """The next points, `at_once` of them or as many as are left, each with the number of its trial."""
        asked = []
        for _ in range(min(self.spec.at_once, self.left)):
            trial = self._study.ask(self._distributions)
            asked.append((trial.number, tuple((key, said(value)) for key, value in trial.params.items())))
        return asked

    def tell(self, trial: int, status: str, folder: Path) -> None:
        """What became of a trial, whose job lies in `folder`: the least value of its metric, or that it has none.

        Raises ConfigError where a job has ended well and never logged such a metric, of which no other job will.
        """
        if status == "completed":
            self._refuse_unlogged(folder)
        state = _optuna().trial.TrialState
        values = [value for _, value in values_of(folder, self.spec.metric)]
        if status == "completed" and values:
            self._study.tell(trial, min(values), skip_if_finished=True)
        elif status == "invalid":
            self.trial(trial).set_user_attr("invalid", True)
            self._study.tell(trial, state=state.FAIL, skip_if_finished=True)
        elif status == "pruned":
            self._study.tell(trial, state=state.PRUNED, skip_if_finished=True)
        else:
            self._study.tell(trial, state=state.FAIL, skip_if_finished=True)

    def _refuse_unlogged(self, folder: Path) -> None:
        metric, logged = self.spec.metric, sorted({name for row in _rows(folder) for name in row})
        if metric not in logged:
            found = f"{metric!r}, which job {folder.name} never logged"
            rule = f"a metric that runs log, which are {', '.join(logged)}"
            fix = f"sweep.search.metric={nearest(metric, logged) or 'val/loss'}"
            raise ConfigError([Problem("sweep.search.metric", found, rule, fix)])

    def watch(self, trial: int, folder: Path) -> Watch:
        """What looks after a job while it runs."""
        return Watch(self, trial, folder)

    def trial(self, number: int) -> Any:
        """Optuna's own object of a trial."""
        return _optuna().trial.Trial(self._study, self._study.trials[number]._trial_id)


class Watch:
    """Reports what a run has reached to the study, each time it is called, and says whether it should be ended."""

    def __init__(self, search: Search, trial: int, folder: Path):
        self._trial, self._folder, self._metric = search.trial(trial), folder, search.spec.metric
        self._reported = 0

    def __call__(self) -> str | None:
        """Why the run should end, or None."""
        for step, value in values_of(self._folder, self._metric)[self._reported :]:
            self._reported += 1
            self._trial.report(value, step)
            if self._trial.should_prune():
                return f"{self._metric} {value:.4g} at step {step} is worse than what earlier runs had there"
        return None


def values_of(folder: Path, metric: str) -> list[tuple[int, float]]:
    """(step, value) of each finite value that a run has logged of a metric."""
    found = [(row["step"], row[metric]) for row in _rows(folder) if row.get(metric) is not None]
    return [(step, value) for step, value in found if math.isfinite(value)]


def _rows(folder: Path) -> list[dict[str, Any]]:
    """What a run has logged by now."""
    path = folder / "metrics.jsonl"
    return read_metrics(path) if path.exists() else []


def _distribution(key: str, value: Any) -> Any:
    optuna = _optuna()
    rule = "{low: ..., high: ...}, with log: true or a step where wanted, or a list of values"
    fix = f"sweep.search.space={{{key}: {{low: 1e-4, high: 1e-2, log: true}}}}"
    problem = ConfigError([Problem(f"sweep.search.space.{key}", str(value), rule, fix)])
    if isinstance(value, list) and value:
        return optuna.distributions.CategoricalDistribution(value)
    if not isinstance(value, Mapping) or not {"low", "high"} <= set(value) <= {"low", "high", "log", "step"}:
        raise problem
    whole = all(isinstance(value[end], int) for end in ("low", "high"))
    kind = optuna.distributions.IntDistribution if whole else optuna.distributions.FloatDistribution
    try:
        return kind(**value)
    except (ValueError, TypeError) as error:
        said_why = Problem(f"sweep.search.space.{key}", str(value), f"{rule}: {error}", fix)
        raise ConfigError([said_why]) from None


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ArchlabError("sweep.search needs optuna, which isn't installed: pip install 'archlab[optuna]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna

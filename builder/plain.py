"""What a job asks that measures plain decoders alone: that it is given one."""

from __future__ import annotations

from .errors import ConfigError, Problem
from .spec import RunSpec


def refuse_others(spec: RunSpec, job: str) -> None:
    """Raises ConfigError for a model that isn't a decoder trained on each next token of a text."""
    objective = spec.objective.component
    problems = []
    if spec.model.kind != "decoder":
        rule = f"{job} measures decoders"
        problems.append(Problem("model.kind", spec.model.kind, rule, "model=decoder objective=next_token"))
    elif set(objective(spec.objective).blank(1, 1, "cpu")) != {"tokens"}:
        rule = f"{job} makes up texts, in which each token predicts the next"
        problems.append(Problem("objective", spec.objective.name, rule, "objective=next_token"))
    if problems:
        raise ConfigError(problems)

"""What a sweep may say, on the command line as `sweep.<key>=` and in conf/sweep/*.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from builder.component import refuse
from builder.experiments.metrics import better
from builder.section import Section

Axes = dict[str, list[Any]]
"""Keys as they are typed, `model.n_layers` or `model/attention`, with the values that each takes."""


class Conditional(Section):
    """Axes of those points only that have the values `when`, by key or by group."""

    when: dict[str, Any]
    product: Axes


class SearchSpec(Section):
    """Points that are chosen one after the other, by Optuna, from what earlier ones gave.

    sampler     tpe: Bayesian, by tree-structured Parzen estimators (Bergstra et al. 2011); random
    space       {key: {low, high, log, step}} for a range, or {key: [values]}
    metric      what is made small
    trials      how many points
    at_once     how many of them are launched together
    prune       median: a run below the median of the earlier ones at the same step is ended; hyperband; null: none
    seed        of the sampler
    """

    sampler: Literal["tpe", "random"] = "tpe"
    space: dict[str, Any] = Field(min_length=1)
    metric: str = "val/loss"
    trials: PositiveInt = 20
    at_once: PositiveInt = 1
    prune: Literal["median", "hyperband"] | None = None
    seed: int = 0

    @field_validator("metric")
    @classmethod
    def _less_of_it_is_better(cls, metric: str) -> str:
        if better(metric) == "max":
            refuse("", metric, "a search makes its metric small, and more of this one is better", "metric=val/loss")
        return metric


class SweepSpec(Section):
    """A sweep: its axes, beside those of the command line, and what becomes of its points.

    product         every value with every other
    paired          groups of axes of one length, taken step by step
    listed          points as they stand
    conditional     axes that only some points have
    search          points that Optuna chooses, in the place of a plan
    dry             print and write the plan, and stop there
    invalid         skip: points that fail the checklist are left out; stop: one of them stops the sweep
    failed          go_on: a job that fails is one row of the report; stop: no other is started after it
    resume          the folder of a sweep: what is missing of it is run
    """

    product: Axes = {}
    paired: list[Axes] = []
    listed: list[dict[str, Any]] = []
    conditional: list[Conditional] = []
    search: SearchSpec | None = None
    dry: bool = False
    invalid: Literal["skip", "stop"] = "skip"
    failed: Literal["go_on", "stop"] = "go_on"
    resume: str | None = None

    @property
    def has_axes(self) -> bool:
        """Whether anything is varied."""
        return bool(self.product or self.paired or self.listed or self.conditional)

    @field_validator("paired")
    @classmethod
    def _pairs_are_of_one_length(cls, groups: list[Axes]) -> list[Axes]:
        for number, group in enumerate(groups):
            lengths = {key: len(values) for key, values in group.items()}
            if len(set(lengths.values())) > 1:
                refuse(str(number), lengths, "lists of one length: their values are taken together", "as many of each")
        return groups

    @model_validator(mode="before")
    @classmethod
    def _what_nothing_takes(cls, given: Any) -> Any:
        for name in ("product", "paired", "listed", "conditional"):
            for path, group in _groups(name, given.get(name) if isinstance(given, Mapping) else None):
                empty = [key for key, values in group.items() if values == []]
                if empty:
                    refuse(f"{path}.{empty[0]}", [], "at least one value: an axis without any leaves no point")
        return given

    @model_validator(mode="after")
    def _one_way_to_choose_points(self) -> Self:
        if self.search is not None and self.has_axes:
            rule = "a search chooses its points itself, and axes list them: one of the two"
            refuse("search", "a search beside axes", rule, "put the axes into search.space, as {key: [values]}")
        if self.search is not None and self.dry:
            rule = "a search chooses its points from what earlier ones gave, so there is no plan to look at"
            refuse("dry", True, rule, "sweep.dry=false, or axes")
        return self


def _groups(name: str, axes: Any) -> list[tuple[str, Mapping[str, Any]]]:
    """The groups of axes of a section by their paths."""
    listed = {f"{name}.{number}": each for number, each in enumerate(axes)} if isinstance(axes, list) else {name: axes}
    inside = {
        f"{path}.product" * ("product" in each) or path: each.get("product", each)
        for path, each in listed.items()
        if isinstance(each, Mapping)
    }
    return [(path, group) for path, group in inside.items() if isinstance(group, Mapping)]

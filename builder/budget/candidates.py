"""The models that a budget chooses among: one config with one whole number after another at one path."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from functools import cache, reduce
from typing import Any

from builder.checklist.subject import Subject
from builder.errors import ConfigError
from builder.finding import Finding, Status
from builder.ledger import ledger
from builder.load import load
from builder.spec import RunSpec

from .search import enclose
from .spec import BudgetSpec

NEAR = 16
"""How many numbers from the one that stands there are tried before its config is taken to be wrong by itself."""

FARTHEST = 256
"""By how many times the number that stands there may grow; and to `LEAST` in any case."""

LEAST = 1024

TASK = ("model.vocab_size", "model.train_length", "model.deploy_length")
"""Sizes that are the task's, not the architecture's: runs with other ones can't be compared."""


class Candidates:
    """What a config costs with a number at one of the keys that a budget solves; each number is looked at once.

    Raises ConfigError with the config's own problems when it loads with no number near the one that stands there.
    """

    def __init__(self, config: dict[str, Any], budget: BudgetSpec, key: str, farthest: int = FARTHEST):
        self._config = {section: content for section, content in config.items() if section != "budget"}
        self.budget, self.key, self.given = budget, key, _at(config, key)
        self.start = self.given if isinstance(self.given, int) and self.given > 0 else 1
        self.limit = farthest * self.start if farthest < FARTHEST else max(farthest * self.start, LEAST)
        self._spec, self.valid, self.cost = cache(self._loaded), cache(self._valid), cache(self._cost)
        self.sample = self._sample()

    @property
    def sizes(self) -> dict[str, int | None]:
        """The model's whole numbers by their paths, those of the task left out; None where a knob is left open."""
        numbers = dict(_numbers(self.sample.to_dict()["model"], "model"))
        return {path: number for path, number in numbers.items() if path not in TASK}

    def around(self) -> tuple[int | None, int | None]:
        """The numbers whose costs enclose the target; see `search.enclose`."""
        return enclose(self.budget.target, start=self.start, limit=self.limit, valid=self.valid, cost=self.cost)

    def refused(self, number: int) -> list[Finding]:
        """What the components of a model that loads say against its sizes."""
        subject = Subject(self._spec(number), False, None, None, False)
        stated = [finding for section in (1, 5) for finding in subject.stated_in(section)]
        return [finding for finding in stated if finding.status is Status.FAIL]

    def _sample(self) -> RunSpec:
        """The config loaded as it stands, or with a number close by where what stands there is wrong."""
        try:
            return self._spec(1) if self.given == "???" else load(self._config)
        except ConfigError as error:
            there = isinstance(_at(self._config, self.key.rpartition(".")[0]), dict)
            for number in range(max(1, self.start - NEAR), self.start + NEAR) if there else ():
                try:
                    return self._spec(number)
                except ConfigError:
                    continue
            raise error from None

    def _loaded(self, number: int) -> RunSpec:
        return load(placed(self._config, self.key, number))

    def _valid(self, number: int) -> bool:
        """Whether a number makes a model that can be built, and leaves no round of its pattern half done."""
        try:
            model = self._spec(number).model
        except ConfigError:
            return False
        if any(tower.unserved for tower in model.towers.values()):
            return False
        whole = model.n_layers % len(model.pattern) == 0 or model.n_layers == self.sample.model.n_layers != number
        return whole and not self.refused(number)

    def _cost(self, number: int) -> int:
        return self.budget.cost(ledger(self._spec(number).model))


def placed(config: dict[str, Any], path: str, number: int) -> dict[str, Any]:
    """A copy of a plain config with a number at a path."""
    config = deepcopy(config)
    *parents, key = path.split(".")
    reduce(lambda node, parent: node.setdefault(parent, {}), parents, config)[key] = number
    return config


def _at(config: Any, path: str) -> Any:
    for step in path.split("."):
        config = config.get(step) if isinstance(config, dict) else None
    return config


def _numbers(node: Any, path: str) -> Iterator[tuple[str, int | None]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _numbers(value, f"{path}.{key}")
    elif node is None or (isinstance(node, int) and not isinstance(node, bool)):
        yield path, node

"""What the tests of configs stand on: one composed config, edited by dotted path, and the problems that load finds."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from builder import registry
from builder.compose import compose
from builder.errors import ConfigError, Problem
from builder.load import load


@pytest.fixture(scope="session")
def composed() -> dict[str, Any]:
    return compose(["trainer=cpu"])


@pytest.fixture
def config(composed: dict[str, Any]) -> dict[str, Any]:
    """The default config; a test may change it."""
    return deepcopy(composed)


@pytest.fixture
def edited(config: dict[str, Any]) -> Callable[..., dict[str, Any]]:
    """Makes the default config with values set at dotted paths; `...` removes what stands there."""

    def edit(changes: dict[str, Any]) -> dict[str, Any]:
        for path, value in changes.items():
            *parents, key = path.split(".")
            node = config
            for parent in parents:
                node = node.setdefault(parent, {})
            if value is ...:
                del node[key]
            else:
                node[key] = value
        return config

    return edit


@pytest.fixture
def refused() -> Callable[[dict[str, Any]], dict[str, Problem]]:
    """What load refuses a config for, by path; fails when it loads."""

    def problems(config: dict[str, Any]) -> dict[str, Problem]:
        with pytest.raises(ConfigError) as caught:
            load(config)
        return {problem.path: problem for problem in caught.value.problems}

    return problems


@pytest.fixture
def own_registry() -> Iterator[None]:
    """Forgets afterwards what a test registers."""
    yield
    for place, cls in list(registry._known.items()):  # what stays imported must stay known
        if not cls.__module__.startswith("builder."):
            del registry._known[place]

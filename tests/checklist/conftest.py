"""What the checklist is asked about: a small run that passes, any key of it changed, and components planted in it."""

import copy

import pytest

from builder import registry
from builder.checklist import check
from builder.compose import compose
from builder.load import load


@pytest.fixture(scope="session")
def passing():
    """A config that passes: the default run, small."""
    return compose(["model.n_layers=2", "model.d_model=32", "model.attention.n_heads=4", "model.ffn.d_ff=48"])


@pytest.fixture
def run(passing):
    """run({"model.n_layers": 3, ...}): the RunSpec of the passing config with these keys set; None deletes a slot."""

    def make(changes=()):
        config = copy.deepcopy(passing)
        for path, value in dict(changes).items():
            *parents, key = path.split(".")
            node = config
            for parent in parents:
                node = node[parent]
            node[key] = value
        return load(config)

    return make


@pytest.fixture
def judge(run):
    """judge(changes, probes=False, **data): the report on the passing config with these keys set."""
    return lambda changes=(), probes=False, **data: check(run(changes), probes=probes, **data)


@pytest.fixture
def plant():
    """plant(room, name): the register decorator, undone after the test."""
    planted = []

    def register(room, name):
        planted.append((room, name))
        return registry.register(room, name)

    yield register
    for key in planted:
        registry._known.pop(key, None)

"""What three layers of a kind tell is what all of them together cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from builder import compose, ledger, load
from builder.ledger import _figures
from builder.ledger.sample import LAST, Sample, every
from builder.model.assemble import build

ARCHS = sorted(path.stem for path in Path("recipes/arch").glob("*.yaml"))
FEW = ["bart_base", "modernbert_base", "olmoe_1b_7b", "gemma3_1b"]
OVERRIDES = {
    "shared": ["model.n_layers=9", "model.shared=[attention+ffn]"],
    "memory": ["model/ssm@model.memory=memory", "model.pattern=[attention+ffn,memory]", "model.n_layers=10"],
    "growing": ["model.n_layers=9", "model.ffn.name=tests.ledger.growing:Growing", "model/ffn=mlp"],
}


def told(spec) -> dict:
    return ledger(spec).to_dict()


def counted(spec) -> dict:
    """The same of the whole model, every layer built."""
    return _figures(build(spec, device="meta"), every(spec))


@pytest.mark.parametrize(
    "words",
    [
        *([f"arch={name}"] for name in FEW),
        *OVERRIDES.values(),
        *(pytest.param([f"arch={name}"], marks=pytest.mark.slow) for name in ARCHS if name not in FEW),
    ],
    ids=str,
)
def test_few_layers_tell_of_all(words):
    spec = load(compose(words)).model
    assert {key: value for key, value in told(spec).items() if key != "shapes"} == counted(spec)


def test_layers_that_grow_are_all_built():
    """The negative control: that the last of them stood for the others would be wrong."""
    spec = load(compose(OVERRIDES["growing"])).model
    few = Sample.of(spec)
    assert few.n_layers == 3 and _figures(build(few, device="meta"), few.times(LAST)) != counted(spec)


def test_a_sample_stands_where_its_layers_do():
    spec = load(compose(["model.n_layers=9"])).model
    few = Sample.of(spec)
    assert [few.site(place) for place in range(3)] == [spec.site(layer) for layer in (0, 1, 8)]

"""The build sheet: what a run is made of, what it costs, and which kernel computes each attention."""

import pytest

from builder import compose, load
from builder.experiments.sheet import sheet
from builder.ledger import ledger

SMALL = ["model.d_model=32", "model.n_layers=3", "model.attention.n_heads=4", "model.ffn.d_ff=48"]
LOCAL = ["model/attention@model.local=gqa", "model.local.n_heads=2", "model.local.n_kv_heads=1"]
LOCAL += ["model.pattern=[local+ffn,attention+ffn]"]


@pytest.fixture
def written():
    """written(*overrides): the sheet of the small model."""

    def write(*overrides: str) -> str:
        spec = load(compose([*SMALL, *overrides]))
        return sheet(spec, ledger(spec.model))

    return write


def test_layers_and_costs_are_there(written):
    text = written(*LOCAL, "model.local.window=16")
    assert "| 0 | local (gqa) + ffn (glu) |" in text and "| 1 | attention (gqa) + ffn (glu) |" in text
    assert (
        "| layer 0 | Q | B H T E | [1, 2, 128, 16] |" in text and "| layer 1 | Q | B H T E | [1, 4, 128, 8] |" in text
    )


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["model.local.window=16"], "| local | SDPA on a CPU, Flex on a GPU |"),
        (["model.local.window=16"], "| attention | SDPA on a CPU, SDPA on a GPU |"),
        (["model.local.softcap=30.0"], "| local | Eager on a CPU, Flex on a GPU |"),
        (["model.local.softcap=30.0", "model.local.dropout=0.1"], "| local | Eager on a CPU, Eager on a GPU |"),
        (["model.local.position={name: alibi}"], "| local | SDPA on a CPU, Flex on a GPU |"),
        (["model.local.kernel=eager"], "| local | Eager on a CPU, Eager on a GPU |"),
    ],
)
def test_the_kernel_of_each_slot_is_there(written, overrides, line):
    assert line in written(*LOCAL, *overrides)

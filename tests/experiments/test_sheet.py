"""The build sheet: what a run is made of, what it costs, and which kernel computes each attention."""

import pytest

from builder import compose, load
from builder.checklist.report import Report
from builder.experiments.sheet import sheet
from builder.finding import Finding, Status
from builder.ledger import ledger

SMALL = ["model.d_model=32", "model.n_layers=3", "model.attention.n_heads=4", "model.ffn.d_ff=48"]
LOCAL = ["model/attention@model.local=gqa", "model.local.n_heads=2", "model.local.n_kv_heads=1"]
LOCAL += ["model.pattern=[local+ffn,attention+ffn]"]
REPORT = Report((Finding(Status.WARN, 3, "model.position", "theta 1e4", "a rule", "a fix"),))


@pytest.fixture
def written():
    """written(*overrides): the sheet of the small model."""

    def write(*overrides: str) -> str:
        spec = load(compose([*SMALL, *overrides]))
        return sheet(spec, ledger(spec.model), REPORT)

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


MOE = ["model/ffn@model.moe=moe", "model.pattern=[attention+moe,attention+ffn,attention+moe]"]
MOE += ["model.moe.n_experts=8", "model.moe.top_k=2", "model.moe.expert.d_ff=24"]


def test_experts_are_told_of_by_layer_with_what_is_active_and_what_is_sent(written):
    text = written(*MOE)
    assert "| 0 | attention (gqa) + moe (moe) |" in text and "| 1 | attention (gqa) + ffn (glu) |" in text
    embedding, attention, norms, ffn = 258 * 32, 3 * 3 * 32 * 32, 7 * 32, 3 * 32 * 48  # half as many KV heads
    router, expert = 8 * 32, 3 * 32 * 24
    beside = embedding + attention + norms + ffn + 2 * router
    assert f"| all parameters | {beside + 2 * 8 * expert:,} |" in text
    assert f"| active per token | {beside + 2 * 2 * expert:,} |" in text
    for ranks in (2, 4, 8):  # two layers, two experts each, there and back, four bytes a number
        sent = 2 * 2 * 32 * 2 * 4 * (ranks - 1) // ranks
        assert f"| bytes sent per token, {ranks} ranks | {sent:,} |" in text


def test_without_experts_nothing_is_sent(written):
    assert "bytes sent" not in written()

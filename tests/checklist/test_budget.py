"""The finding that a budget gets: met, missed since the model was changed, unknown; none where there is none."""

import pytest

from builder.finding import Status

BUDGET = {"name": "params", "target": "100k", "solve": "model.ffn.d_ff"}


def told(report):
    return [finding for finding in report.findings if finding.path == "budget"]


def test_no_budget_is_not_spoken_of(judge):
    assert not told(judge())


def test_a_budget_that_is_met_is_shown(judge):
    (finding,) = told(judge({"budget": BUDGET}))
    assert (finding.status, finding.section) == (Status.PASS, 1)
    assert "parameters with model.ffn.d_ff=" in finding.found and "100,000" in finding.rule


@pytest.mark.parametrize("layers", [1, 3])
def test_a_model_that_was_changed_since_fails(run, judge, layers):
    solved = run({"budget": BUDGET}).budget.solved
    kept = {"budget": BUDGET | {"solved": solved}, "model.ffn.d_ff": solved}
    assert told(judge(kept))[0].status is Status.PASS
    (finding,) = told(judge(kept | {"model.n_layers": layers}))
    assert finding.status is Status.FAIL and "budget.solved=null" in finding.fix
    mended = kept | {"model.n_layers": layers, "budget": BUDGET | {"solved": None}}
    assert told(judge(mended))[0].status is Status.PASS


def test_a_model_that_cannot_be_built_has_no_cost(judge):
    broken = {"budget": BUDGET | {"solved": 48}, "model.d_model": 34}
    assert told(judge(broken))[0].status is Status.UNKNOWN

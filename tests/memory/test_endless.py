"""What would be played for minutes is told, and not played: a scan over a long text without its kernel."""

import pytest

from builder.checklist.memory import check
from builder.checklist.subject import Subject
from builder.finding import Status
from builder.memory import Endless, largest_micro_batch, watch
from tests.tiny_run import spec_of

SCAN = ["model/ssm=mamba", "model.pattern=[ssm,attention+ffn]", "batch.micro_batch=auto"]


def test_a_step_without_end_is_not_forecast(tmp_path, monkeypatch):
    spec = spec_of(tmp_path, *SCAN)
    assert check(Subject(spec, False, None, None)).found != "no memory forecast"
    monkeypatch.setattr(watch, "MOST", 200)
    told = check(Subject(spec, False, None, None))
    assert told.status is Status.UNKNOWN and told.found == "no memory forecast" and "200 operations" in told.rule
    with pytest.raises(Endless, match=r"write batch\.micro_batch=<a number>"):
        largest_micro_batch(spec)

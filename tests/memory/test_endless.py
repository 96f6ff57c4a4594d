"""What would be played for minutes is told, and not played: a scan over a long text without its kernel."""

import pytest

from builder.checklist.memory import check
from builder.checklist.subject import Subject
from builder.finding import Status
from builder.memory import Endless, forecast, largest_micro_batch, watch
from tests.forked import in_ranks
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


def test_wherever_it_ends_the_process_lives_on(tmp_path):
    """Torch can't pass on an error of every call that it makes: one would end the process."""
    spec = spec_of(tmp_path, "model/ssm=gated_delta", "model.pattern=[ssm]")

    def ended(rank: int) -> int:
        limits = range(2, 200, 11)
        for watch.MOST in limits:
            with pytest.raises(Endless):
                forecast(spec)
        return len(limits)

    assert in_ranks(1, ended) == [18]

"""A component that raises is told as a finding, wherever the checklist runs it."""

import pytest

from builder.components.ffn.glu import GLU
from builder.finding import Status


@pytest.mark.parametrize(("method", "section"), [("__init__", 1), ("forward", 1), ("flops", 1)])
def test_what_a_component_raises_is_a_finding(judge, monkeypatch, method, section):
    assert judge(probes=True).ok

    def broken(self, *args, **kwargs):
        raise RuntimeError("4 does not fit 3")

    monkeypatch.setattr(GLU, method, broken)
    failures = judge(probes=True).failures
    assert failures and all(finding.status is Status.FAIL for finding in failures)
    assert failures[0].section == section and "RuntimeError at test_faults.py" in failures[0].found
    assert "4 does not fit 3" in failures[0].found

"""A state forgets most of what is far behind: the probe of who sees whom still finds it, and finds who sees nothing."""

import pytest

from builder import check, compose, load
from builder.components.ssm import SSM
from builder.registry import names

MIXERS = [(room, name) for room in ("ssm", "recurrent") for name in names(room)]


def masks(room, name):
    words = [f"model/{room}={name}", f"model.pattern=[{room},attention+ffn]", "model.n_layers=2"]
    return [finding for finding in check(load(compose(words))).findings if finding.section == 2]


@pytest.mark.parametrize(("room", "name"), MIXERS, ids="/".join)
def test_what_is_far_behind_is_seen(room, name):
    assert {str(finding.status) for finding in masks(room, name)} == {"PASS"}


def test_a_layer_that_looks_at_nothing_behind_it_is_told(monkeypatch):
    def blind(self, x, ctx):
        return x * 2

    monkeypatch.setattr(SSM, "forward", blind)
    told = [finding for finding in masks("ssm", "mamba") if str(finding.status) == "WARN"]
    assert any("ignores token" in finding.found for finding in told)

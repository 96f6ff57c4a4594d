"""An attention and a recurrence side by side: the sum of the two, each with its factors, and what is said of both."""

import pytest
import torch
from pydantic import ValidationError

from builder import check, compose, load
from builder.finding import Status

T = 11
FACTORS = {"attention_in": 1.5, "attention_out": 0.7, "ssm_in": 0.6, "ssm_out": 2.0}
SIDES = {"attention": {"name": "gqa", "n_heads": 4, "window": 3}, "ssm": {"name": "rglru", "n_blocks": 4}}


@pytest.fixture
def hybrid(layer, wide):
    def make(**knobs):
        return wide(layer("hybrid_head", **SIDES | knobs))

    return make


@pytest.mark.parametrize("factors", [{}, FACTORS], ids=["plain", "scaled"])
def test_it_is_the_sum_of_both(hybrid, context, factors):
    mixer, x = hybrid(**factors), torch.randn(2, T, 32, dtype=torch.float64)
    told = dict.fromkeys(FACTORS, 1.0) | factors
    sides = [told[f"{name}_out"] * mixer.get_submodule(name)(told[f"{name}_in"] * x, context(T)) for name in SIDES]
    out = mixer(x, context(T))
    assert (out - sum(sides)).abs().max() <= 1e-12
    assert all((out - side).abs().max() > 1e-3 for side in sides)


def test_its_state_is_that_of_both(hybrid):
    mixer, like = hybrid(), {"device": torch.device("cpu"), "dtype": torch.float64}
    both = [mixer.get_submodule(name).new_state(2, 9, **like).bytes() for name in SIDES]
    assert mixer.new_state(2, 9, **like).bytes() == sum(both) and min(both) > 0


def test_the_attention_is_divided_and_the_recurrence_stays_whole(hybrid):
    plan = hybrid().divide(2)
    assert plan == {f"attention.{name}": "columns" for name in "qkv"} | {"attention.o": "rows"}


def test_a_window_beside_a_recurrence_that_reads_both_ways_is_refused(layer, config, site):
    """An encoder's window shows what follows, a recurrence what is far behind: no mask says both."""
    for window, fails in ((3, True), (None, False)):
        chosen = config("ssm", "hybrid_head", **SIDES | {"attention": {"name": "gqa", "n_heads": 4, "window": window}})
        told = list(chosen.component.check(chosen, site(causal=False)))
        assert [(finding.path, finding.status) for finding in told] == [("attention.window", Status.FAIL)] * fails
        assert not list(chosen.component.check(chosen, site()))


def test_what_mixes_no_positions_of_its_own_is_refused(config):
    with pytest.raises(ValidationError, match="mixes the positions of the tokens themselves") as caught:
        config("ssm", "hybrid_head", **SIDES | {"attention": {"name": "cross", "n_heads": 4}})
    assert caught.value.errors()[0]["loc"] == ("attention", "name")


KNOBS = ["model/ssm@model.ssm=hybrid_head", "model.pattern=[ssm+ffn]", "~model.attention", "model.vocab_size=258"]


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ("model.ssm.attention.n_heads=5", "model.ssm.attention.n_heads", "must divide d_model"),
        ("model.ssm.ssm.d_head=60", "model.ssm.ssm.d_head", "must divide the"),
        ("model.ssm.attention.kernel=flex", "model.ssm.kernel", "no backward"),
    ],
)
def test_what_is_said_of_either_is_heard(change, path, words):
    def failures(*changes):
        spec = load(compose([*KNOBS, *changes, "trainer.accelerator=cpu"]))
        return [found for found in check(spec, probes=False, trains=False).findings if found.status is Status.FAIL]

    assert not failures()
    told = failures(*["model.ssm.attention.n_kv_heads=5"] * ("n_heads" in change), change)
    assert any(finding.path == path and words in finding.rule for finding in told), told

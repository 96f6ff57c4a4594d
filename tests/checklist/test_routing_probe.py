"""Routing before training: on tokens whose load is known without a model, and with a capacity that must overflow."""

import pytest
import torch

from builder import check, compose, load
from builder.checklist.probes.routing import simulate
from builder.data import Corpus, Shape
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from builder.finding import Status

MOE = ["model/ffn=moe", "model.d_model=32", "model.n_layers=2", "model.attention.n_heads=4", "logger=none"]


def spec_of(*overrides):
    return load(compose([*MOE, *overrides]))


def judged(tokens, *overrides):
    (finding,) = simulate(spec_of(*overrides).model, tokens, "tokens")
    return finding


def many():
    return torch.randint(258, (4096,), generator=torch.Generator().manual_seed(1))


def test_equal_tokens_all_go_to_the_same_experts():
    """The same vector everywhere: 2 of 8 experts get all, 4 times the mean each, and the entropy is log 2 / log 8."""
    finding = judged(torch.full((4096,), 7))
    assert "max/mean 4.00, entropy 0.33 of 1, 0% dropped, 6 of 8 dead" in finding.found
    assert "0 of 8 dead" in judged(many()).found


@pytest.mark.parametrize(
    ("factor", "dropped", "status"),
    [("0.5", "50%", Status.WARN), ("8.0", "0%", Status.PASS), ("null", "0%", Status.PASS)],
)
def test_a_capacity_of_half_the_choices_drops_half_of_them(factor, dropped, status):
    finding = judged(many(), f"model.ffn.capacity_factor={factor}")
    assert f"{dropped} dropped" in finding.found and finding.status is status
    assert finding.fix.startswith("model.ffn.capacity_factor=null") == (status is Status.WARN)


def test_few_tokens_are_routed_too():
    assert "5 tokens" in judged(many()[:5]).found


def test_nothing_drawn_is_left_behind():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    judged(many(), "model.ffn.router.jitter=0.1")
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("read", [True, False])
def test_real_tokens_are_routed_when_they_were_read(read):
    rows = Stream(torch.full((5000,), 7), Shape(16), Bytes())
    corpus = Corpus(Bytes(), rows, rows, "x") if read else None
    said = [f"{f.path} {f.found} {f.rule}" for f in check(spec_of(), corpus=corpus).findings if f.section == 5]
    assert sum("random tokens" in line for line in said) == 1
    assert any("real tokens: max/mean 4.00" in line for line in said) == read
    assert any("data not read" in line for line in said) != read

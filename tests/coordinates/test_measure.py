"""The check itself: mu-P keeps every size, the standard parametrisation and each half of mu-P are seen to grow."""

import pytest
import torch

from builder import build
from builder.components.init.mup import MuP
from builder.coordinates import measure
from builder.coordinates.trace import Quantity, trace
from builder.finding import Status
from builder.training.optimizer.adamw import AdamW
from tests.coordinates.conftest import MUP

WIDTHS = (16, 32, 64, 128)
STANDARD = ["model/init=normal"]
FAST = "optimizer.lr=4e-3"  # few steps that are felt


def slopes(run, *, steps=3, seeds=2):
    """The verdicts of a run, by what they are of: those of the steepest layer."""
    found = measure(*run, WIDTHS, steps=steps, seeds=seeds)
    return {verdict.quantity.what: verdict for verdict in found.steepest}


@pytest.mark.parametrize("tied", ["true", "false"])
def test_with_mup_nothing_grows(tiny, tied):
    found = slopes(tiny(*MUP, FAST, f"model.tie_embeddings={tied}"))
    assert set(found) == {"embedding", "attention", "ffn", "stream", "logits"}
    assert {verdict.status for verdict in found.values()} == {Status.PASS}, found


def test_without_it_logits_and_hidden_states_grow(tiny):
    """One rate of Adam for all widths moves hidden states by as much as the width grows: a slope of 1 and more."""
    found = slopes(tiny(*STANDARD, FAST))
    for what in ("attention", "ffn", "stream", "logits"):
        assert found[what].status is Status.FAIL and max(found[what].sizes) > 0.4, found[what]
    assert found["stream"].moves[-1] > 0.7
    assert found["embedding"].status is Status.PASS


def test_the_logits_of_a_tied_head_without_their_multiplier_grow(tiny):
    """Those of a table whose numbers stay as large are sums of width numbers: a slope of 1 / 2 as drawn."""
    spec, corpus = tiny(*MUP, FAST)
    head = spec.model.head.model_copy(update={"scale": None})
    half = spec.model_copy(update={"model": spec.model.model_copy(update={"head": head})})
    found = slopes((half, corpus))
    assert found["logits"].status is Status.FAIL
    assert found["logits"].sizes[0] == pytest.approx(0.5, abs=0.1)


def test_a_rate_that_is_not_scaled_is_seen(tiny, monkeypatch):
    monkeypatch.setattr(MuP, "rate", lambda *_: 1.0)
    found = slopes(tiny(*MUP, FAST))
    assert found["stream"].status is Status.FAIL and found["stream"].moves[-1] > 0.4
    assert max(found["stream"].sizes[:1]) < 0.1, "as drawn all is well"


def test_a_rate_that_falls_too_fast_is_seen(tiny, monkeypatch):
    """1 / m^2, where 1 / m keeps what is moved."""
    rate = MuP.rate
    monkeypatch.setattr(MuP, "rate", lambda *given: rate(*given) ** 2)
    found = slopes(tiny(*MUP, FAST))
    assert found["ffn"].status is Status.WARN or found["attention"].status is Status.WARN, found


@pytest.mark.parametrize("scale", ["match_rms_adamw", "original"])
def test_muon_moves_as_far_at_every_width(tiny, scale):
    rates = {"match_rms_adamw": [FAST], "original": ["optimizer.lr=0.05", "optimizer.adamw_lr=4e-3"]}
    muon = ["optimizer=muon", f"optimizer.scale={scale}", *rates[scale]]
    found = slopes(tiny(*MUP, *muon))
    assert {verdict.status for verdict in found.values()} == {Status.PASS}, found


def test_what_is_measured_is_what_the_model_gives(tiny):
    spec, corpus = tiny("model.n_layers=2")
    tokens = corpus.train.first(2 * 17).view(2, 17)
    told = trace(spec, spec.model, 5, tokens, 1)
    assert list(told) == [
        *[Quantity("embedding"), Quantity("attention", 0), Quantity("ffn", 0), Quantity("stream", 0)],
        *[Quantity("attention", 1), Quantity("ffn", 1), Quantity("stream", 1), Quantity("logits")],
    ]

    model = build(spec.model, seed=5).eval()
    x = model.embedding.weight[tokens[:, :-1]].detach()
    assert told[Quantity("embedding")][0][0].item() == pytest.approx(x.abs().mean().item())
    before = model(tokens[:, :-1]).logits
    optimizer = AdamW.build(spec.optimizer, model)
    torch.nn.functional.cross_entropy(before.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    optimizer.step()
    after = model(tokens[:, :-1]).logits
    sizes, moves = told[Quantity("logits")]
    assert sizes.tolist() == pytest.approx([before.abs().mean().item(), after.abs().mean().item()], rel=1e-5)
    assert moves.tolist() == pytest.approx([0.0, (after - before).abs().mean().item()], rel=1e-4)


def test_the_stream_is_what_the_final_norm_reads(tiny):
    spec, corpus = tiny()
    tokens = corpus.train.first(2 * 17).view(2, 17)
    model, heard = build(spec.model, seed=1).eval(), []
    model.final_norm.register_forward_pre_hook(lambda module, inputs: heard.append(inputs[0].abs().mean().item()))
    model(tokens[:, :-1])
    assert trace(spec, spec.model, 1, tokens, 1)[Quantity("stream", 0)][0][0].item() == pytest.approx(heard[0])


def test_every_copy_is_told_of_and_seeds_differ(tiny):
    told = []
    found = measure(*tiny(), (16, 32), steps=1, seeds=2, tell=told.append)
    assert told == ["d_model 16", "d_model 16", "d_model 32", "d_model 32"]
    sizes = found.sizes[Quantity("logits")]
    assert sizes.shape == (2, 2, 2) and sizes[0, 0, 0] != sizes[0, 1, 0]
    again = measure(*tiny(), (16, 32), steps=1, seeds=2)
    assert torch.equal(again.sizes[Quantity("logits")], sizes)

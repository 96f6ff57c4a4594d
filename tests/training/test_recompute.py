"""Activation checkpointing: the same numbers and gradients from fewer saved bytes, for the slots that are named."""

import copy

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointError

from builder import build
from builder.model.context import Aux, Context
from builder.training.losses import Losses
from builder.training.recompute import recompute
from builder.training.stand_in import standing_in
from tests.tiny_run import MOE, spec_of

CASES = {
    "dense": [],
    "dropout": ["model.block.dropout=0.2", "model.attention.dropout=0.2", "model.embedding.dropout=0.2"],
    "learned bias": ["model/position=t5"],
    "experts": [*MOE, "model.moe.balance.z_loss=0.001", "model.moe.router.jitter=0.1", "model.moe.capacity_factor=0.7"],
    "post norm": ["model/block=post_norm"],
    "parallel": ["model/block=parallel"],
}


@pytest.fixture
def made(tmp_path):
    """made(*overrides): (the model of a tiny run in training, tokens for it)."""

    def make(*overrides):
        spec = spec_of(tmp_path, "model.n_layers=3", "model.vocab_size=64", "model.deploy_length=16", *overrides)
        generator = torch.Generator().manual_seed(0)
        tokens = torch.randint(0, 64, (2, spec.model.train_length), generator=generator)
        return build(spec.model, seed=0).train(), tokens

    return make


def passed(model, tokens, slots, **arguments):
    """(logits, what layers reported, every gradient, saved bytes) of a pass in which these slots are recomputed."""
    kept = {}

    def keep(tensor):
        held = tensor.untyped_storage()
        kept[held.data_ptr()] = held.nbytes()
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    torch.manual_seed(0)
    model.zero_grad()
    with standing_in(recompute(model, slots)), saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(tokens, **arguments)
        loss = output.logits.float().logsumexp(-1).sum() + sum(output.aux.losses.values())
    saved = sum(size for place, size in kept.items() if place not in weights)
    torch.rand(3)  # what is drawn between the passes changes nothing
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return output.logits.detach(), output.aux, gradients, saved


def watched(model, *names):
    """The names of these modules, one for each time that one of them begins."""
    ran = []
    for name in names:  # the second run ends as soon as all is there, in the middle of a module
        model.get_submodule(name).register_forward_pre_hook(lambda *_, name=name: ran.append(name))
    return ran


@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_the_plain_model(made, case):
    model, tokens = made(*CASES[case])
    logits, aux, gradients, saved = passed(model, tokens, model.spec.slots)
    expected = passed(model, tokens, ())
    assert torch.equal(logits, expected[0]) and saved < expected[3]
    assert aux.losses.keys() == expected[1].losses.keys() and list(aux.tallies) == list(expected[1].tallies)
    assert all(torch.equal(aux.losses[name], loss) for name, loss in expected[1].losses.items())
    assert all(torch.equal(aux.tallies[module], tally) for module, tally in expected[1].tallies.items())
    assert gradients.keys() == expected[2].keys()
    for name, gradient in expected[2].items():
        assert (gradients[name] - gradient).abs().max() <= 1e-6 * gradient.abs().max(), name


def test_saved_bytes_are_those_of_the_inputs(made):
    """Of each part x (B, T, D) alone is left, and what stands outside of parts."""
    model, tokens = made()
    saved = [passed(model, tokens, slots)[3] for slots in ((), ("ffn",), ("attention",), ("attention", "ffn"))]
    none, ffn, attention, both = saved
    assert both < ffn < none and both < attention < none
    widest = 2 * 16 * 32 * 4 * 3  # (B, T, F) in float32 in each layer: at least the ffn's hidden vectors are gone
    assert none - ffn >= widest


def test_a_slot_that_is_not_named_runs_once(made):
    model, tokens = made(*MOE)
    ran = watched(model, "layers.0.mixer.o", "layers.0.ffn.experts", "layers.1.ffn.down", "layers.1.mixer.o")
    passed(model, tokens, ("ffn",))
    assert ran == ["layers.0.mixer.o", "layers.0.ffn.experts", "layers.1.mixer.o", *["layers.1.ffn.down"] * 2]
    assert recompute(model, ()) == {} and len(recompute(model, ("moe", "attention"))) == 5


def test_without_gradients_nothing_runs_twice(made):
    model, tokens = made()
    ran = watched(model, "layers.0.ffn.down")
    with torch.no_grad(), standing_in(recompute(model, model.spec.slots)):
        state = model.eval().new_state(2, 16)
        whole = model(tokens).logits
        parts = [model(part, state=state).logits for part in (tokens[:, :5], tokens[:, 5:6], tokens[:, 6:])]
    assert len(ran) == 4 and (torch.cat(parts, 1) - whole).abs().max() <= 1e-5


def test_nothing_is_left_on_the_model(made):
    model, tokens = made()
    names = list(model.state_dict())
    forwards = recompute(model, model.spec.slots)
    with standing_in(forwards):
        assert list(model.state_dict()) == names
        model(tokens)
    assert not any("forward" in vars(module) for module in model.modules())
    twin = copy.deepcopy(model)
    torch.nn.init.zeros_(twin.layers[0].mixer.o.weight)
    assert not torch.equal(twin(tokens).logits, model(tokens).logits)


def test_what_layers_would_share_is_made_in_each(made, monkeypatch):
    """Else the second run, which finds it made, saves other tensors than the first, which made it."""
    model, tokens = made(*CASES["learned bias"])
    monkeypatch.setattr(Context, "apart", lambda self: self)
    with pytest.raises(CheckpointError):
        passed(model, tokens, model.spec.slots)


def test_padding_and_the_shape_ledger_are_handed_on(made):
    model, tokens = made(*MOE)
    real = torch.ones_like(tokens, dtype=torch.bool)
    real[1, 9:] = False
    found, expected = (
        passed(model, tokens, slots, attention_mask=real, aux=Aux(shapes=[])) for slots in (model.spec.slots, ())
    )
    assert torch.equal(found[0], expected[0]) and found[1].shapes == expected[1].shapes != []


def test_autocast_is_the_same_in_both_runs(made):
    model, tokens = made()
    with torch.autocast("cpu", torch.bfloat16):
        found = passed(model, tokens, model.spec.slots)
        expected = passed(model, tokens, ())
    exact = passed(model, tokens, ())
    assert torch.equal(found[0], expected[0]) and not torch.equal(found[0], exact[0])
    for name, gradient in expected[2].items():
        assert torch.equal(found[2][name], gradient), name


def test_losses_are_those_of_the_spec(tmp_path, made):
    for asked, slots in (("false", ()), ("[ffn]", ("ffn",)), ("true", ("attention", "ffn"))):
        spec = spec_of(tmp_path, f"activation_checkpointing={asked}")
        model = build(spec.model, seed=0).train()
        ran = watched(model, "layers.0.mixer.o", "layers.0.ffn.down")
        total, _, _ = Losses(model, spec.objective.component(spec.objective), spec)({"tokens": torch.ones(2, 9).long()})
        total.backward()
        assert len(ran) == 2 + len(slots)

"""Every family: logits equal to transformers' in full, padded and cached passes, and tensors bit-equal on the way back.

The cases are in cases.py, cases_moe.py, cases_ssm.py and cases_hybrid.py; add one for each variant that a family's
tables tell apart.
"""

from inspect import signature

import pytest
import torch
from transformers import DynamicCache

from builder import export_hf
from builder.interop import family
from tests.interop.cases import CASES
from tests.interop.cases_encoders import ENCODERS, TWO_TOWERS
from tests.interop.cases_hybrid import HYBRIDS
from tests.interop.cases_moe import MIXTURES
from tests.interop.cases_ssm import RECURRENT
from tests.interop.conftest import fields, ids, made, ours, tensors, theirs

ALL = CASES | MIXTURES | RECURRENT | HYBRIDS


@pytest.fixture(scope="module", params=ALL)
def folder(request, tmp_path_factory):
    """A tiny random model of the case, saved by transformers."""
    config, values = ALL[request.param]
    path = tmp_path_factory.mktemp("model")
    made(config(**values)).save_pretrained(path)
    return path


@pytest.fixture
def both(folder):
    return ours(folder), theirs(folder)


def test_every_family_has_a_case():
    two_way = {config.model_type for _, config, _ in (ENCODERS | TWO_TOWERS).values()}
    assert {config.model_type for config, _ in ALL.values()} | two_way == set(family.model_types())


def test_full_passes_are_equal(both):
    mine, theirs = both
    tokens = ids(3, 24)
    assert (mine(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-4


def test_padded_passes_are_equal(both):
    """Theirs is asked without the pads: where Mamba's map has a bias, they reach its convolution there."""
    mine, theirs = both
    tokens, real = ids(2, 12), torch.ones(2, 12, dtype=torch.bool)
    real[0, :5] = False
    padded = mine(tokens, attention_mask=real).logits
    for row, first in ((0, 5), (1, 0)):
        assert (padded[row, first:] - theirs(tokens[row : row + 1, first:]).logits[0]).abs().max() <= 1e-4


def test_cached_steps_are_equal(both):
    """Theirs is told the places of the tokens: Bamba begins anew from 0 at each step otherwise."""
    mine, theirs = both
    tokens, places = ids(2, 12), torch.arange(12).expand(2, 12)
    state, known = mine.new_state(2, 12), signature(theirs.forward).parameters
    cache = DynamicCache(config=theirs.config)
    kept = next(name for name in ("cache", "past_key_values") if name in known)
    for part, place in zip(tokens.split((8, 1, 1, 1, 1), dim=1), places.split((8, 1, 1, 1, 1), dim=1), strict=True):
        placed = {"position_ids": place} if "position_ids" in known else {}
        right = theirs(part, **{kept: cache}, **placed, use_cache=True)
        assert (mine(part, state=state).logits - right.logits).abs().max() <= 1e-4


def test_the_way_back_gives_every_bit(folder, tmp_path, quietly_loaded):
    mine = ours(folder)
    model_type = fields(folder)["model_type"]
    assert export_hf(mine, tmp_path / "back", family=model_type).model_type == model_type
    before, after = tensors(folder), tensors(tmp_path / "back")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    theirs, tokens = quietly_loaded(tmp_path / "back"), ids(3, 24)
    assert (mine(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-5


def test_some_family_is_found_for_it(folder, tmp_path, quietly_loaded):
    mine, tokens = ours(folder), ids(3, 24)
    export_hf(mine, tmp_path / "out")
    assert (mine(tokens).logits - quietly_loaded(tmp_path / "out")(tokens).logits).abs().max() <= 1e-5


def test_another_layout_of_heads_is_seen(folder):
    """The negative control: query heads one place on, or keys, give other logits; latent ones where they're made; and
    where a state is, what it is fed."""
    mine, tokens = ours(folder), ids(3, 24)
    right = mine(tokens).logits
    mixer = mine.layers[0].mixer
    mixer = getattr(mixer, "attention", mixer)  # beside a state
    pairs = (("q", "k"), ("q_b", "kv_b"), ("input_gate", "decay_gate"), ("input", "b"))
    for name in next(pair for pair in pairs if hasattr(mixer, pair[0])):
        module = getattr(mixer, name)
        with torch.no_grad():
            weight = module.weight
            weight.copy_(weight.roll(weight.shape[0] // 4, 0))
        assert (mine(tokens).logits - right).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["llama linear", "llama yarn", "llama llama3"])
def test_a_scaling_that_was_left_out_is_seen(tmp_path, change, name):
    """The negative control: dynamic scaling alone does nothing within max_position_embeddings."""
    config, values = CASES[name]
    model = made(config(**values))
    model.save_pretrained(tmp_path)
    change(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert (ours(tmp_path)(ids(3, 24)).logits - model(ids(3, 24)).logits).abs().max() > 1e-3


def test_dynamic_scaling_past_its_length(tmp_path, change):
    config, values = CASES["llama dynamic"]
    tokens = ids(2, values["max_position_embeddings"] + 30)
    made(config(**values)).save_pretrained(tmp_path)
    right = theirs(tmp_path)(tokens).logits
    assert (ours(tmp_path)(tokens).logits - right).abs().max() <= 1e-4
    change(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
    assert (ours(tmp_path)(tokens).logits - right).abs().max() > 1e-3

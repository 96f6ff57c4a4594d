"""Every family: logits equal to transformers' in full, padded and cached passes, and tensors bit-equal on the way back.

The cases are in cases.py and cases_moe.py; add one for each variant that a family's tables tell apart.
"""

from inspect import signature

import pytest
import torch

from builder import export_hf
from builder.interop import family
from tests.interop.cases import CASES
from tests.interop.cases_moe import MIXTURES
from tests.interop.conftest import fields, ids, made, ours, tensors, theirs

ALL = CASES | MIXTURES


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
    assert {config.model_type for config, _ in ALL.values()} == set(family.model_types())


def test_full_passes_are_equal(both):
    mine, theirs = both
    tokens = ids(3, 24)
    assert (mine(tokens).logits - theirs(tokens).logits).abs().max() <= 1e-4


def test_padded_passes_are_equal(both):
    mine, theirs = both
    tokens, real = ids(2, 12), torch.ones(2, 12, dtype=torch.bool)
    real[0, :5] = False
    places = (real.long().cumsum(1) - 1).clamp_min(0)
    positioned = {"position_ids": places} if "position_ids" in signature(theirs.forward).parameters else {}
    expected = theirs(tokens, attention_mask=real.long(), **positioned).logits
    assert ((mine(tokens, attention_mask=real).logits - expected) * real[..., None]).abs().max() <= 1e-4


def test_cached_steps_are_equal(both):
    mine, theirs = both
    tokens = ids(2, 12)
    state, cache = mine.new_state(2, 12), None
    for part in tokens.split((8, 1, 1, 1, 1), dim=1):
        right = theirs(part, past_key_values=cache, use_cache=True)
        cache = right.past_key_values
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
    """The negative control: query heads one place on, or keys, give other logits; latent ones where they're made."""
    mine, tokens = ours(folder), ids(3, 24)
    right = mine(tokens).logits
    mixer = mine.layers[0].mixer
    for module in (mixer.q, mixer.k) if hasattr(mixer, "k") else (mixer.q_b, mixer.kv_b):
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

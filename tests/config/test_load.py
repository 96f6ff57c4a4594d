"""A key that is misspelt, misplaced, missing or of no use is refused with path, value, rule and remedy."""

from collections.abc import Callable
from itertools import chain
from typing import Any, get_args

import pytest
from lightning.fabric import connector
from lightning.pytorch.accelerators import AcceleratorRegistry
from lightning.pytorch.utilities.enums import GradClipAlgorithmType

from builder import trainer
from builder.compose import compose
from builder.errors import ConfigError, Problem, shown
from builder.load import load

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Problem]]
ROPE = {"name": "rope", "theta": 100.0}

# (the key as it was written, the key that was meant)
MISSPELT = [
    ("modell", "model"),
    ("lrr", "optimizer.lr"),
    ("model.d_modle", "model.d_model"),
    ("model.n_headz", "model.attention.n_heads"),
    ("model.attention.n_headz", "model.attention.n_heads"),
    ("model.ffn.d_fff", "model.ffn.d_ff"),
    ("model.norm.epss", "model.norm.eps"),
    ("model.block.dropot", "model.block.dropout"),
    ("model.position.thetaa", "model.position.theta"),
    ("model.init.stdd", "model.init.std"),
    ("model.embedding.dropot", "model.embedding.dropout"),
    ("model.head.biass", "model.head.bias"),
    ("data.val_fractoin", "data.val_fraction"),
    ("optimizer.weight_decy", "optimizer.weight_decay"),
    ("schedule.warmup_stepz", "schedule.warmup_steps"),
    ("batch.sequence", "batch.sequences"),
    ("sample.promt", "sample.prompt"),
    ("output.experimnt", "output.experiment"),
    ("trainer.max_stepz", "trainer.max_steps"),
    ("callbacks.best.monitr", "callbacks.best.monitor"),
    ("logger.wandb.projekt", "logger.wandb.project"),
]
MISPLACED = [
    ("d_model", "model.d_model"),
    ("lr", "optimizer.lr"),
    ("model.lr", "optimizer.lr"),
    ("model.theta", "model.position.theta"),
    ("model.attention.theta", "model.position.theta"),
    ("model.d_ff", "model.ffn.d_ff"),
    ("optimizer.warmup_steps", "schedule.warmup_steps"),
    ("batch.d_model", "model.d_model"),
]


@pytest.mark.parametrize(("key", "meant"), MISSPELT + MISPLACED)
def test_a_key_that_no_one_reads_is_refused_and_the_right_one_named(
    key: str, meant: str, edited: Edit, refused: Refused
):
    found = refused(edited({key: 12345}))
    assert list(found) == [key]
    assert found[key].found == "12345" and found[key].rule
    assert found[key].fix == f"did you mean {meant}?"


@pytest.mark.parametrize("key", ["model.zzzzzz", "foo", "data.val_share"])
def test_a_key_like_no_other_is_to_be_left_out(key: str, edited: Edit, refused: Refused):
    assert refused(edited({key: 1}))[key].fix == f"leave {key} out"


def test_a_key_that_a_default_may_state_is_to_be_taken_away(edited: Edit, refused: Refused):
    problem = refused(edited({"model.attention": {"name": "gru", "n_heads": 4}, "model.pattern": ["attention"]}))
    assert "or write ~model.attention.n_heads where" in problem["model.attention.n_heads"].fix


@pytest.mark.parametrize(
    ("key", "value", "fault", "fix"),
    [
        ("optimizer.betas", [0.8, 1.5], "optimizer.betas.1", "optimizer.betas=[0.9,0.95]"),
        (
            "sample.messages",
            [{"role": "usr", "content": "a, b"}],
            "sample.messages.0.role",
            "=[{role: user,content: 'a,b'}]",
        ),
        ("sample.messages", [{"role": "user"}], "sample.messages.0.content", "=[{role: user,content: ...}]"),
        ("model.pattern", ["attention", 3], "model.pattern.1", "model.pattern=[attention,...]"),
    ],
)
def test_what_is_wrong_in_a_list_is_mended_as_a_list(
    key: str, value: Any, fault: str, fix: str, edited: Edit, refused: Refused
):
    assert refused(edited({key: value}))[fault].fix.endswith(fix)


@pytest.mark.parametrize(("key", "most"), [("model.n_layers", 2048), ("model.d_model", 2**20), ("seed", 2**32 - 1)])
def test_a_slip_of_the_finger_is_no_size(key: str, most: int, edited: Edit, refused: Refused):
    load(edited({"model.attention.d_head": 8, key: most}))
    assert refused(edited({key: most + 1}))[key].fix == f"{key}={most}"


def test_the_words_of_the_trainer_are_lightnings():
    known = {*chain.from_iterable(get_args(each) for each in get_args(connector._PRECISION_INPUT))}
    assert set(trainer.CHOICES["precision"]) == known
    assert {*AcceleratorRegistry.available_accelerators(), "auto", "gpu"} == set(trainer.CHOICES["accelerator"])
    assert {each.value for each in GradClipAlgorithmType} == set(trainer.CHOICES["gradient_clip_algorithm"])


@pytest.mark.parametrize(
    ("slot", "key"),
    [
        ("model.attention.position", "thetaa"),
        ("model.block.norm", "epss"),
        ("model.local.position", "thetaa"),
    ],
)
def test_a_typo_in_a_slot_inside_a_slot_has_its_whole_path(slot: str, key: str, edited: Edit, refused: Refused):
    name = "rope" if key == "thetaa" else "rmsnorm"
    outer = {"model.local": {"name": "gqa", "n_heads": 2}} if "local" in slot else {}
    found = refused(edited({**outer, slot: {"name": name, key: 7}}))
    assert list(found) == [f"{slot}.{key}"]
    assert found[f"{slot}.{key}"].fix == f"did you mean {slot}.{key[:-1]}?"
    assert f"{slot} ({name}) has no such key" in found[f"{slot}.{key}"].rule


@pytest.mark.parametrize(
    ("key", "owner"),
    [("model.ffn.top_k", "glu"), ("model.position.length", "rope"), ("model.norm.bias", "rmsnorm")],
)
def test_a_knob_of_a_component_that_is_not_chosen_is_refused(key: str, owner: str, edited: Edit, refused: Refused):
    problem = refused(edited({key: 2}))[key]
    assert f"({owner}) has no such key" in problem.rule


@pytest.mark.parametrize(
    ("slot", "meant"), [("model.attenton", "model.attention"), ("model.pozition", "model.position")]
)
def test_a_slot_of_a_misspelt_name_is_refused(slot: str, meant: str, edited: Edit, refused: Refused):
    found = refused(edited({slot: {"n_heads": 4}}))
    assert list(found) == [slot] and found[slot].fix == f"did you mean {meant}?"


def test_a_new_slot_without_a_name_is_told_to_have_one(edited: Edit, refused: Refused):
    found = refused(edited({"model.local": {"n_heads": 4}}))
    assert found["model.local"].fix == "model.local.name=..."
    assert "slot" in found["model.local"].rule


def test_a_misspelt_callback_is_refused(edited: Edit, refused: Refused):
    found = refused(edited({"callbacks.bestt.monitor": "val/loss"}))
    assert found["callbacks.bestt"].fix == "did you mean callbacks.best?"


def test_all_problems_come_at_once(edited: Edit, refused: Refused):
    wrong = {
        "seed": -1,
        "modell": 1,
        "model.n_layers": 2.5,
        "model.n_headz": 8,
        "model.attention.position": ROPE | {"thetaa": 1},
        "model.ffn.d_ff": 0,
        "optimizer.lr": "abc",
        "trainer.max_epochs": 3,
        "trainer.logger": True,
        "trainer.max_steps": 0,
        "trainer.devicez": 1,
        "sample.top_p": 0,
        "output.root": ...,
    }
    paths = set(wrong) - {"model.attention.position"} | {"model.attention.position.thetaa"}
    found = refused(edited(wrong))
    assert set(found) == paths
    assert all(problem.found and problem.rule for problem in found.values())


def test_the_message_states_place_value_rule_and_remedy(edited: Edit):
    with pytest.raises(ConfigError) as caught:
        load(edited({"optimizer.lrr": 0.5, "seed": -1}))
    text = str(caught.value)
    assert text.startswith("2 problems in the config\n")
    for part in ("optimizer.lrr: found 0.5", "seed: found -1", "rule: ", "fix:  did you mean optimizer.lr?"):
        assert part in text


@pytest.mark.parametrize(
    "pattern", ["", "ffn", "attention+attention", "ffn+attention", "attention+ffn+ffn", "attention+ffn+attention"]
)
def test_a_layer_is_a_mixer_and_perhaps_an_ffn(pattern: str, edited: Edit, refused: Refused):
    found = refused(edited({"model.pattern": ["attention+ffn", pattern]}))
    assert list(found) == ["model.pattern"] and found["model.pattern"].found == repr(pattern)


@pytest.mark.parametrize("pattern", [["attention"], ["attention+ffn"], [" attention + ffn "], ("attention",)], ids=str)
def test_a_right_pattern_loads(pattern: Any, edited: Edit):
    assert load(edited({"model.pattern": pattern})).model.layers


def test_the_pattern_is_tiled_over_the_layers(edited: Edit):
    changes = {"model.n_layers": 5, "model.pattern": ["attention", "attention+ffn"]}
    layers = load(edited(changes)).model.layers
    assert [str(layer) for layer in layers] == ["attention", "attention+ffn", "attention", "attention+ffn", "attention"]
    assert [layer.index for layer in layers] == list(range(5))


def test_every_undefined_slot_of_the_pattern_is_named(edited: Edit):
    with pytest.raises(ConfigError) as caught:
        load(edited({"model.pattern": ["attenton+ffn", "attention+moe"]}))
    assert [problem.found for problem in caught.value.problems] == ["'attenton+ffn'", "'attention+moe'"]
    assert "define model.moe={name: ...}" in caught.value.problems[1].fix


@pytest.mark.parametrize("pattern", [[], None, "attention+ffn", [3]], ids=str)
def test_a_pattern_is_a_list_of_names(pattern: Any, edited: Edit, refused: Refused):
    assert all(path.startswith("model.pattern") for path in refused(edited({"model.pattern": pattern})))


@pytest.mark.parametrize("slot", ["model.norm", "model.attention", "model.block", "optimizer", "data"])
@pytest.mark.parametrize("value", [None, 3, [1], "gqa"], ids=str)
def test_a_slot_is_a_mapping(slot: str, value: Any, edited: Edit, refused: Refused):
    problem = refused(edited({slot: value}))[slot]
    assert "{name: ..., its own knobs}" in problem.rule
    named = value == "gqa" and slot == "model.attention"
    assert problem.fix == ("model/attention=gqa" if named else f"{slot}.name=...")


def test_a_wrong_name_lists_the_right_ones(edited: Edit, refused: Refused):
    problem = refused(edited({"model.norm.name": "rmsnormm"}))["model.norm.name"]
    assert problem.fix == "model.norm.name=rmsnorm" and "layernorm, nonparametric, rmsnorm" in problem.rule


@pytest.mark.parametrize("key", ["model", "model.d_model", "model.norm", "model.attention.n_heads", "seed", "trainer"])
def test_a_key_without_default_is_required(key: str, edited: Edit, refused: Refused):
    found = refused(edited({key: ...}))
    assert found[key].found == "nothing"
    assert found[key].fix == f"{key}=..."


@pytest.mark.parametrize("value", [0, -1, True, "abc", "100", 1.0, None, ...], ids=str)
def test_a_run_has_a_number_of_steps(value: Any, edited: Edit):
    with pytest.raises(ConfigError) as caught:
        load(edited({"trainer.max_steps": value}))
    (problem,) = caught.value.problems
    assert problem.path == "trainer.max_steps" and "positive number" in problem.rule
    assert problem.found == ("nothing" if value is ... else shown(value))


@pytest.mark.parametrize("key", ["logger", "callbacks", "max_epochs", "default_root_dir", "accumulate_grad_batches"])
def test_what_the_run_sets_itself_may_not_be_set(key: str, edited: Edit, refused: Refused):
    assert list(refused(edited({f"trainer.{key}": 1}))) == [f"trainer.{key}"]


def test_a_trainer_without_target_is_refused(edited: Edit, refused: Refused):
    assert "_target_" in refused(edited({"trainer._target_": ...}))["trainer"].rule


@pytest.mark.parametrize(
    ("overrides", "path"),
    [
        (["data=text"], "data.path"),
        (["model.d_model=???"], "model.d_model"),
        (["optimizer.betas=[0.9,???]"], "optimizer.betas"),
        (["trainer.max_steps=???"], "trainer.max_steps"),
    ],
)
def test_a_value_that_must_be_given_is_named_once(overrides: list[str], path: str):
    with pytest.raises(ConfigError) as caught:
        load(compose(overrides))
    assert [(problem.path, problem.found) for problem in caught.value.problems] == [(path, "???")]


@pytest.mark.parametrize("slot", ["model", "pop", "forward"])
def test_a_slot_needs_a_name_of_its_own(slot: str):
    config = compose([f"model.{slot}={{name: gqa, n_heads: 2}}", f"model.pattern=[{slot}+ffn]", "~model.attention"])
    with pytest.raises(ConfigError, match=rf"model\.{slot}: found 'gqa'"):
        load(config)

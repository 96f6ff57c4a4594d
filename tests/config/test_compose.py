"""Overrides as people type them become one plain dict, and a wrong one is answered with its reason and no traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from builder.compose import adapt, compose, prepare
from builder.errors import ArchlabError
from builder.load import load


def at(config: Any, path: str) -> Any:
    for key in path.split("."):
        config = config[key]
    return config


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("model.d_model=64", "model.d_model", 64),
        ("model.norm.eps=1e-3", "model.norm.eps", 1e-3),  # no YAML states it
        ("+model.norm.eps=1e-3", "model.norm.eps", 1e-3),
        ("++model.norm.eps=1e-3", "model.norm.eps", 1e-3),
        ("++model.d_model=64", "model.d_model", 64),
        ("model.far={name: gqa, n_heads: 2}", "model.far.n_heads", 2),
        ("model.pattern=[attention, attention+ffn]", "model.pattern", ["attention", "attention+ffn"]),
        ("model/norm=layernorm", "model.norm.name", "layernorm"),
        ("optimizer.lr=${model.norm.eps}", "optimizer.lr", 1.0),
        ("model.ffn.d_ff=${model.d_model}", "model.ffn.d_ff", 128),
        ("logger=none", "logger", {}),
        ("hydra.job.name=other", "seed", 0),
        ("model/position@model.attention.position=learned", "model.attention.position", {"name": "learned"}),
    ],
)
def test_an_override_lands_where_it_says(override: str, path: str, value: Any):
    also = ["model.norm.eps=1.0"] if "${model.norm.eps}" in override else []
    config = compose([*also, override])
    assert at(config, path) == value
    assert "hydra" not in config
    load(config)


def test_a_part_is_left_out_with_a_tilde():
    config = compose(["~model.ffn", "model.pattern=[attention]"])
    assert "ffn" not in config["model"] and str(load(config).model.layers[0]) == "attention"


def test_a_preset_fills_a_new_slot():
    heads = ["model.local.n_heads=4", "model.pattern=[attention+ffn, local]"]
    model = load(compose(["model/attention@model.local=mqa", *heads])).model
    assert model.slots["local"].kv_heads == 1 and model.slots["attention"].kv_heads == 2
    assert [str(layer) for layer in model.layers] == ["attention+ffn", "local"] * 2


@pytest.mark.parametrize(("preset", "kv_heads"), [("mha", 8), ("mqa", 1), ("gqa", 2)])
@pytest.mark.parametrize("slot", ["attention", "far"])
def test_a_preset_follows_the_number_of_heads(preset: str, kv_heads: int, slot: str):
    group = "model/attention" if slot == "attention" else "model/attention@model.far"
    used = f"model.pattern=[{slot}+ffn]"
    model = load(compose([f"{group}={preset}", f"model.{slot}.n_heads=8", used])).model
    assert model.slots[slot].kv_heads == kv_heads


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model/norm=rmsnormm", ["model/norm/rmsnormm", "layernorm", "rmsnorm"]),
        ("optimizer=adam", ["optimizer/adam", "adamw"]),
        ("trainer=tpu", ["trainer/tpu", "auto", "cpu", "gpu"]),
        ("model=foo", ["model/foo", "decoder"]),
        ("a=[", ["a=["]),
        ("model.d_model", ["model.d_model"]),
        ("=3", ["=3"]),
        ("logger=null", ["logger: found null", "a group holds one of its files: none, wandb,", "write logger=none"]),
        ("callbacks=null", ["callbacks: found null", "write ~callbacks"]),
        ("model/router=", ["model/router: found nothing", "write ~model/router"]),
        ("model.d_model=${nope}", ["model.d_model", "nope"]),
        ("model.d_model=${model.nope}", ["model.d_model", "model.nope"]),
        ("model.d_model=${oops:1}", ["model.d_model", "oops"]),
        ("model.n_layers=1,2", ["model.n_layers=1,2", "--multirun"]),
        ("~model.nope", ["model.nope"]),
        ("hydra.nope=1", ["hydra.nope"]),
        ("+model.d_model=3", ["model.d_model"]),
        ("model/norm=my.module:Norm", ["layernorm", "write model.norm.name=my.module:Norm"]),
        ("model/norm@model.block.norm=a:B", ["write model.block.norm.name=a:B"]),
        ("model/residual=[depth,gated]", ["model/residual", "[depth,gated]", "-m model/residual=a,b"]),
    ],
)
def test_a_wrong_override_is_answered_with_its_reason(override: str, said: list[str]):
    with pytest.raises(ArchlabError) as caught:
        compose([override])
    message = str(caught.value)
    assert all(word in message for word in said), message
    for noise in ("Traceback", "Config search path", "object_type", "file://"):
        assert noise not in message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model:\n\td_model: 64\n", r"own\.yaml, line 3: found character '\\t' that cannot start any token"),
        ("model:\n  d_model: 64\n  d_model: 32\n", r"own\.yaml, line 4: found duplicate key d_model"),
        ("model: \x01\n", r"own\.yaml: unacceptable character"),
    ],
)
def test_a_file_that_is_no_yaml_is_named(text: str, said: str, own: Callable[[str], list[str]]):
    with pytest.raises(ArchlabError, match=said):
        compose(own(text))


def test_groups_are_looked_for_where_one_says(own: Callable[[str], list[str]]):
    assert compose([*own("model:\n  d_model: 64\n"), "arch=gpt2"])["model"]["d_model"] == 64


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], list[str]]:
    """Writes an experiment of one's own; what is typed to use it."""

    def written(text: str) -> list[str]:
        (tmp_path / "experiment").mkdir()
        (tmp_path / "experiment" / "own.yaml").write_text(f"# @package _global_\n{text}")
        return [f"hydra.searchpath=[file://{tmp_path}]", "experiment=own"]

    return written


@pytest.mark.parametrize("group", ["arch", "experiment", "debug"])
def test_a_wrong_option_of_a_group_that_is_empty_by_default_is_refused(group: str):
    with pytest.raises(ArchlabError, match="no_such_option"):
        compose([f"{group}=no_such_option"])


def test_a_missing_value_behind_an_interpolation_is_named():
    with pytest.raises(ArchlabError) as caught:
        compose(["model.d_model=???", "model.n_layers=${model.d_model}"])
    assert "model.d_model" in str(caught.value) and "model.n_layers" in str(caught.value)


def test_an_unknown_config_is_refused():
    with pytest.raises(ArchlabError, match="trian"):
        compose([], "trian")


@pytest.mark.parametrize(("gpu", "value"), [(True, "gpu"), (False, "cpu")])
def test_the_resolver_states_which_machine_it_was(gpu: bool, value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    prepare()
    assert OmegaConf.to_container(OmegaConf.create({"x": "${on_gpu:gpu,cpu}"}), resolve=True) == {"x": value}
    config = compose(["trainer=auto"])
    assert config["trainer"]["accelerator"] == value and config["compile"] is gpu


def test_one_compose_leaves_nothing_for_the_next():
    before = compose()
    other = compose(["model.d_model=64", "model/norm=layernorm", "~model.ffn", "model.far={name: gqa}"])
    other["model"]["n_layers"] = 99
    with pytest.raises(ArchlabError):
        compose(["model=foo"])
    assert compose() == before and before["model"]["d_model"] == 128


def test_it_does_not_matter_where_one_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    before = compose()
    monkeypatch.chdir(tmp_path)
    assert compose() == before and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("typed", "passed"),
    [
        ("a.b=1", "++a.b=1"),
        ("+a.b=1", "+a.b=1"),
        ("++a.b=1", "++a.b=1"),
        ("~a.b", "~a.b"),
        ("model/norm=rmsnorm", "model/norm=rmsnorm"),
        ("model/norm@model.x=rmsnorm", "+model/norm@model.x=rmsnorm"),
        ("hydra.job.name=x", "hydra.job.name=x"),
        ("hydra/launcher=basic", "hydra/launcher=basic"),
    ],
)
def test_overrides_are_adapted_as_stated(typed: str, passed: str):
    assert adapt([typed])[1:] == [passed]


@pytest.mark.parametrize("text", ["a, b", 'it\'s "so"', "x=[1, (2", "${seed} \\ %", "12", "", "null"])
def test_a_prompt_is_taken_as_typed(text: str):
    assert compose([f"prompt={text}"], "generate")["prompt"] == text
    assert compose([f"sample.prompt={text}"])["sample"]["prompt"] == text

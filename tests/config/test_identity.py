"""A spec is frozen, plain on the way out, the same on the way back, and known by a hash of what is trained."""

import copy
import json
import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf
from pydantic import BaseModel, ValidationError

from builder.component import Room
from builder.compose import compose
from builder.errors import ConfigError, Problem
from builder.identity import _told, fingerprint
from builder.load import load
from builder.spec import VERSION, ModelSpec

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Problem]]


def plain(node: Any) -> bool:
    if isinstance(node, dict):
        return type(node) is dict and all(type(key) is str and plain(value) for key, value in node.items())
    return all(map(plain, node)) if type(node) is list else node is None or type(node) in (str, int, float, bool)


def leaves(node: Any, path: str = "") -> list[str]:
    if isinstance(node, dict):
        return [leaf for key, value in node.items() for leaf in leaves(value, f"{path}.{key}".strip("."))]
    return [path]


def test_the_vocabulary_becomes_the_tokenizers(edited: Edit):
    assert load(edited({"model.vocab_size": None})).model.vocab_size == 256 + 2  # bytes, an end, a padding
    assert load(edited({"tokenizer": {"name": "bpe", "vocab_size": 500}})).model.vocab_size == 500


def test_a_larger_vocabulary_stays(edited: Edit):
    assert load(edited({"model.vocab_size": 320})).model.vocab_size == 320


@pytest.mark.parametrize(
    ("section", "key"), [("", "seed"), ("model", "d_model"), ("optimizer", "lr"), ("output", "root"), ("batch", "x")]
)
def test_nothing_in_a_spec_can_be_set(section: str, key: str, config: dict[str, Any]):
    spec = load(config)
    with pytest.raises(ValidationError):
        setattr(getattr(spec, section) if section else spec, key, 1)


def test_what_the_caller_does_later_does_not_reach_the_spec(edited: Edit):
    config = edited({"trainer.strategy": {"_target_": "lightning.pytorch.strategies.DDPStrategy", "x": [1]}})
    spec = load(config)
    before = spec.hash
    config["trainer"]["strategy"]["x"].append(2)
    config["callbacks"]["best"]["monitor"] = "other"
    config["model"]["attention"]["n_heads"] = 1
    assert spec.hash == before and spec.trainer["strategy"]["x"] == (1,)
    assert spec.callbacks["best"]["monitor"] == "val/loss"


def test_load_leaves_the_config_alone(config: dict[str, Any]):
    before = deepcopy(config)
    load(config)
    assert config == before


def test_out_and_in_again_is_the_same(edited: Edit):
    spec = load(
        edited(
            {
                "model.attention.position": {"name": "rope", "fraction": 0.5},
                "model.block.norm": {"name": "layernorm", "bias": False},
                "model.far": {"name": "gqa", "n_heads": 2},
                "model.pattern": ["attention+ffn", "far"],
                "output.tags": ["a", "b"],
            }
        )
    )
    once = spec.to_dict()
    assert plain(once) and not plain({"x": (1,)}) and not plain({"x": OmegaConf.create({})})
    assert load(once) == spec and load(once).to_dict() == once and load(once).hash == spec.hash
    assert load(yaml.safe_load(yaml.safe_dump(once))) == spec
    assert load(json.loads(json.dumps(once))) == spec
    assert once["version"] == VERSION and once["model"]["attention"]["position"]["theta"] == 10000.0
    assert once["model"]["far"]["qk_norm_at"] == "before"  # a default that only the code states


def test_the_order_of_keys_does_not_matter(config: dict[str, Any]):
    def backwards(node: Any) -> Any:
        return {key: backwards(node[key]) for key in reversed(node)} if isinstance(node, dict) else node

    assert list(backwards(config)) != list(config)
    assert load(backwards(config)).hash == load(config).hash


def test_every_key_of_the_model_is_part_of_the_identity(config: dict[str, Any]):
    """Each leaf of the model is changed in turn: where the change loads, the hash is another one."""
    spec = load(config).to_dict()
    first, seen = load(spec).hash, []
    for path in leaves(spec["model"]):
        changed = deepcopy(spec)
        *parents, key = path.split(".")
        node = changed["model"]
        for parent in parents:
            node = node[parent]
        for other in _others(node[key]):
            node[key] = other
            try:
                assert load(changed).hash != first, path
            except ConfigError:
                continue
            seen.append(path)
            break
    assert {"d_model", "n_layers", "tie_embeddings", "attention.n_heads", "position.theta", "ffn.d_ff"} <= set(seen)
    assert len(seen) > 20


def _others(value: Any) -> list[Any]:
    """Values that stand where `value` stood, one of which may be allowed there."""
    if isinstance(value, bool) or value is None:
        return [not value, 4, {"name": "none"}, {"name": "rmsnorm"}]
    if isinstance(value, int | float):
        return [other for other in (value * 2, value / 2, 0.5, 1) if other != value]
    options = ("layernorm", "post_norm", "learned", "normal", "eager", "gelu", "relu")
    return [["attention"], *options]


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"optimizer.lr": 0.5},
        {"schedule.floor": 0.5},
        {"batch.sequences": 7},
        {"trainer.max_steps": 7},
        {"data.val_fraction": 0.3},
        {"trainer.precision": "bf16-mixed"},
        {"guard": {}},
        {"ema": {}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_training_is_part_of_the_identity(changes: dict[str, Any], edited: Edit, composed: dict[str, Any]):
    assert load(edited(changes)).hash != load(composed).hash


@pytest.mark.parametrize(
    "changes",
    [
        {"output.root": "elsewhere", "output.name": "x", "output.experiment": "y", "output.tags": ["z"]},
        {"logger": {}},
        {"callbacks": {}},
        {"sample.prompt": "Once", "sample.temperature": 0.0},
        {"compile": True},
        {"compile": "blocks", "fused_loss": True, "activation_checkpointing": ["ffn"]},
        {"batch.micro_batch": 3},
        {"trainer.devices": 4, "trainer.num_nodes": 2, "trainer.strategy": "ddp", "trainer.accelerator": "cpu"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_place_watchers_and_execution_are_not(changes: dict[str, Any], edited: Edit, composed: dict[str, Any]):
    assert load(edited(changes)).hash == load(composed).hash


@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda config: OmegaConf.create(config), "config"),
        (lambda config: config | {"model": OmegaConf.create(config["model"])}, "model"),
        (lambda config: config | {"trainer": config["trainer"] | {"x": OmegaConf.create([1])}}, "trainer.x"),
        (lambda config: config | {"logger": {"x": {"y": object()}}}, "logger.x.y"),
        (lambda config: None, "config"),
        (lambda config: [config], "config"),
    ],
    ids=["whole", "section", "deep", "object", "none", "list"],
)
def test_nothing_but_plain_python_is_loaded(wrap: Callable[[Any], Any], path: str, config: dict[str, Any]):
    with pytest.raises(ConfigError) as caught:
        load(wrap(config))
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{path}: found a ") and "plain Python" in problem.rule


def test_compose_gives_plain_python():
    assert plain(compose(["trainer=auto"]))


def test_nothing_of_a_spec_can_be_changed_after_load():
    spec = load(compose())
    for node in (spec.trainer, spec.callbacks, spec.callbacks["best"], spec.logger["wandb"]):
        with pytest.raises(TypeError, match="after load"):
            node["x"] = 1
        with pytest.raises(TypeError, match="after load"):
            node.pop("_target_", None)
    assert copy.deepcopy(spec).trainer == spec.trainer and pickle.loads(pickle.dumps(spec.trainer)) == spec.trainer


class _Before(BaseModel):
    """A component's knobs, in an earlier version."""

    name: str = "thing"
    width: int
    bias: bool = False


class _After(_Before):
    """The same with a knob more."""

    scale: float | None = None
    heads: tuple[int, ...] = (1, 2)


def test_a_knob_that_a_later_version_adds_makes_no_run_another():
    assert fingerprint(_Before(width=3)) == fingerprint(_After(width=3))
    assert fingerprint(_Before(width=3, bias=True)) == fingerprint(_After(width=3, bias=True))


@pytest.mark.parametrize("knob", [{"width": 4}, {"bias": True}, {"scale": 1.0}, {"heads": (1,)}, {"name": "other"}])
def test_what_is_no_default_makes_a_run_another(knob: dict[str, Any]):
    assert fingerprint(_After(**{"width": 3} | knob)) != fingerprint(_After(width=3))


def test_a_number_is_no_flag():
    assert fingerprint(_After(width=3, scale=0.0)) != fingerprint(_After(width=3))


def test_what_a_config_may_leave_out_makes_no_run_another():
    """A knob or slot at its default is in no hash, whether it is written or not: so a later version may add some."""
    told = _told(load(compose([])).model)
    left_out = {key for key, field in ModelSpec.model_fields.items() if not field.is_required()}
    assert not left_out & set(told) - {"tie_embeddings", "vocab_size"}  # these two are no defaults here
    written = load(compose(["model.head={name: language_model, bias: false}", "model.shared=[]", "model.encoder=null"]))
    assert written.hash == load(compose([])).hash != load(compose(["model.head.bias=true"])).hash
    heads = [{"name": "sentence"}, {"name": "sentence", "pooling": {"name": "mean"}}]
    one, other = (_told(Room("head").config_class("sentence").model_validate(head)) for head in heads)
    assert one == other == {"name": "sentence"}

"""The JSON Schema of a config: whole, valid, and of one mind with `load` about every config and every misspelling."""

import copy
import json
import sys
from pathlib import Path

import pytest
import yaml
from omegaconf._utils import get_yaml_loader

from builder import registry
from builder.cli import main
from builder.compose import CONF, ROOT, compose
from builder.errors import ArchlabError
from builder.load import load
from builder.schema import json_schema
from builder.spec import RunSpec
from recipes import check

EXPERIMENTS = sorted((CONF / "experiment").glob("*.yaml"))
ARCHITECTURES = sorted((ROOT / "recipes" / "arch").glob("*.yaml"))
OFTEN = "moe_vs_dense gemma2_2b bert_base deepseek_v3 falcon_h1_0.5b gpt_oss_20b t5_small"
FILES = [
    pytest.param(f, marks=[] if f.stem in OFTEN.split() else pytest.mark.slow) for f in (*EXPERIMENTS, *ARCHITECTURES)
]
BESIDE = {name: ["data.path=nowhere.txt"] for name in ("gettext", "nanogpt_cpu", "shakespeare_cpu")}


@pytest.fixture(scope="module")
def whole():
    return json_schema()


@pytest.fixture(scope="module")
def mixtral():
    return load(compose(["arch=mixtral_8x7b"])).to_dict()


@pytest.fixture(scope="module")
def valid():
    """valid(content, partial=False): whether the schema takes it, by the jsonschema package."""
    jsonschema = pytest.importorskip("jsonschema")
    judges = {}
    for partial in (False, True):
        schema = json_schema(partial)
        jsonschema.Draft202012Validator.check_schema(schema)
        judges[partial] = jsonschema.Draft202012Validator(schema)
    return lambda content, partial=False: judges[partial].is_valid(content)


def test_every_component_is_there_with_every_knob(whole):
    for room in registry.ROOMS:
        for name in registry.names(room):
            schema, config = whole["$defs"][f"{room}.{name}"], registry.find(room, name).Config
            assert schema["properties"].keys() == config.model_fields.keys() and "name" in schema["required"]
            assert schema["properties"]["name"] == {"const": name} and schema["additionalProperties"] is False
    assert whole["properties"].keys() == RunSpec.model_fields.keys() and whole["additionalProperties"] is False


def test_nothing_of_pydantics_making_is_left_and_every_reference_leads_somewhere(whole):
    def walk(node):
        yield node
        for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
            yield from walk(child)

    nodes = [node for node in walk(whole) if isinstance(node, dict)]
    refs = [node["$ref"].removeprefix("#/$defs/") for node in nodes if isinstance(node.get("$ref"), str)]
    assert len(refs) > 100 and set(refs) <= whole["$defs"].keys()
    assert not [node for node in nodes if isinstance(node.get("slot"), list)]


def test_keys_say_what_their_docstrings_say(whole):
    model, gqa = whole["$defs"]["ModelSpec"], whole["$defs"]["attention.gqa"]["properties"]
    assert model["properties"]["train_length"]["description"] == "tokens a training sequence holds"
    assert gqa["d_head"]["description"] == "None: d_model / n_heads"  # of the class itself
    assert gqa["window"]["description"].endswith("None: all of them")  # of the one it derives from, over two lines
    assert whole["properties"]["logger"]["description"] == "other people's classes by `_target_`"  # one line for three
    assert "softmax" in whole["$defs"]["attention.gqa"]["description"]
    assert model["properties"]["kind"]["enum"] == ["decoder", "encoder", "encoder_decoder"]
    assert model["properties"]["d_model"]["exclusiveMinimum"] == 0 and model["properties"]["prefix"]["default"] is False


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_takes_every_config_as_it_is_composed_and_frozen(file: Path, valid):
    composed = compose([f"{file.parent.name}={file.stem}", *BESIDE.get(file.stem, ())])
    assert valid(composed) and valid(load(composed).to_dict())


def test_its_partial_form_takes_every_yaml_of_a_whole_config(valid):
    for file in (*EXPERIMENTS, *ARCHITECTURES):
        stated = yaml.load(file.read_text(encoding="utf-8"), Loader=get_yaml_loader())
        assert valid(stated, partial=True) and not valid(stated), file


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.d_modell", 3),
        ("model.d_model", "x"),
        ("model.d_model", 0),
        ("model.tie_embeddings", 1),
        ("model.norm.name", "rmsnormm"),
        ("model.norm.bias", True),  # a knob of layernorm
        ("model.attention.d_rope", 3),  # a knob of mla
        ("model.local", {"name": "gqa"}),  # without its heads
        ("model.local", {"n_heads": 4}),  # without a name
        ("model.ffn.expert", {"name": "moe", "n_experts": 2}),  # experts in an expert
        ("model.ffn.router.k", 2),
        ("compile", "block"),
        ("optimizer.lr", -1.0),
        ("trainer.precision", "fp4"),
        ("model.head", {"name": "classifier"}),  # without its classes
        ("data", {"name": "text"}),
    ],
)
def test_it_refuses_what_load_refuses(path: str, value: object, valid, mixtral):
    wrong = copy.deepcopy(mixtral)
    *parents, key = path.split(".")
    node = wrong
    for parent in parents:
        node = node[parent]
    node[key] = value
    with pytest.raises(ArchlabError):
        load(wrong)
    assert valid(mixtral) and not valid(wrong)


def test_the_partial_form_asks_for_nothing_and_still_refuses(valid):
    for right in ({}, {"model": {"attention": {"n_heads": 4}}}, {"defaults": ["a"], "budget": {"target": "10M"}}):
        assert valid(right, partial=True)
    for wrong in ({"modell": {}}, {"model": {"attention": {"n_headz": 4}}}, {"model": {"norm": {"eps": "small"}}}):
        assert not valid(wrong, partial=True)


@pytest.mark.parametrize("asked", ["true", "partial"])
def test_the_command_prints_the_schema_alone(asked: str, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["check", f"schema={asked}"])
    main(check.job, "check")
    out, err = capsys.readouterr()
    assert json.loads(out) == json_schema(asked == "partial") and err == ""

"""Numbers mean the same on the command line, in a file, and in a frozen config that is read again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from builder.compose import compose
from builder.errors import ArchlabError, Problem, shown
from builder.experiments.folder import RunFolder
from builder.load import load

Edit = Callable[[dict[str, Any]], dict[str, Any]]
Refused = Callable[[dict[str, Any]], dict[str, Problem]]
WRITTEN = {"1e-4": 1e-4, "1E-4": 1e-4, "2e-5": 2e-5, "1.0e-5": 1e-5, "1": 1.0}


@pytest.mark.parametrize(("text", "value"), WRITTEN.items())
def test_an_exponent_is_a_number_everywhere(text: str, value: float, tmp_path: Path, edited: Edit):
    typed = load(compose([f"optimizer.lr={text}", f"output.root={tmp_path}", "trainer=cpu"]))
    filed = load(edited(OmegaConf.to_container(OmegaConf.create(f"optimizer.lr: {text}"))))  # type: ignore[arg-type]
    folder = RunFolder.create(typed)
    again = RunFolder(folder.path).spec()
    for spec in (typed, filed, again):
        rate: Any = spec.optimizer
        assert rate.lr == value and type(rate.lr) is float
    assert again == typed and again.hash == typed.hash == filed.hash


def test_a_frozen_config_is_whole_and_plain(tmp_path: Path):
    text = RunFolder.create(load(compose([f"output.root={tmp_path}"]))).config.read_text()
    assert "???" not in text and "${" not in text and "!!" not in text
    assert yaml.safe_load(text)["trainer"]["accelerator"] in ("cpu", "gpu")


def test_a_frozen_config_that_was_changed_is_refused(tmp_path: Path):
    folder = RunFolder.create(load(compose([f"output.root={tmp_path}"])))
    folder.config.write_text(folder.config.read_text().replace("d_model: 128", "d_model: 256"))
    with pytest.raises(ArchlabError, match="changed after the run"):
        folder.spec()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimizer.lr", "abc"),
        ("optimizer.lr", "1e-4"),
        ("optimizer.lr", True),
        ("optimizer.lr", 0),
        ("optimizer.lr", float("nan")),
        ("optimizer.lr", float("inf")),
        ("optimizer.weight_decay", float("inf")),
        ("model.position.theta", float("inf")),
        ("model.n_layers", 2.5),
        ("model.n_layers", 2.0),
        ("model.n_layers", True),
        ("model.n_layers", "2"),
        ("model.d_model", 0),
        ("model.block.dropout", 1.5),
        ("model.block.dropout", 1.0),
        ("model.block.dropout", -0.1),
        ("model.attention.dropout", 1.5),
        ("model.embedding.dropout", 1.5),
        ("model.tie_embeddings", 1),
        ("model.tie_embeddings", "true"),
        ("seed", -1),
        ("seed", 1.0),
        ("sample.temperature", -0.1),
        ("sample.temperature", float("inf")),
        ("sample.top_p", 1.1),
        ("data.val_fraction", 1),
        ("batch.sequences", 0),
        ("compile", "maybe"),
        ("version", 2),
        ("model.kind", "decodr"),
    ],
)
def test_a_wrong_value_is_refused_with_key_and_value(path: str, value: Any, edited: Edit, refused: Refused):
    found = refused(edited({path: value}))
    assert list(found) == [path]
    assert found[path].found == shown(value) and found[path].rule
    assert "Input should" not in str(found[path])


@pytest.mark.parametrize(
    ("override", "found"),
    [
        ("optimizer.lr=abc", "'abc'"),
        ("model.n_layers=2.5", "2.5"),
        ("model.n_layers=true", "true"),
        ("model.block.dropout=1.5", "1.5"),
        ("seed=-1", "-1"),
        ("optimizer.lr='1e-4'", "'1e-4'"),
    ],
)
def test_the_command_line_is_judged_alike(override: str, found: str, refused: Refused):
    path = override.partition("=")[0]
    assert refused(compose([override]))[path].found == found


@pytest.mark.parametrize("betas", [[0.9], [0.9, 0.95, 0.99], 0.9, [0.9, True], [0.9, 1.0], ["0.9", 0.95]], ids=str)
def test_two_averages_are_two_numbers(betas: Any, edited: Edit, refused: Refused):
    assert all(path.startswith("optimizer.betas") for path in refused(edited({"optimizer.betas": betas})))


def test_too_short_a_list_is_no_missing_key(edited: Edit, refused: Refused):
    problem = refused(edited({"optimizer.betas": [0.9]}))["optimizer.betas"]
    assert (problem.found, problem.rule) == ("[0.9]", "2 entries or more")


def test_a_whole_number_and_its_float_are_one_config(edited: Edit):
    whole, decimal = load(edited({"optimizer.weight_decay": 1})), load(edited({"optimizer.weight_decay": 1.0}))
    assert whole.hash == decimal.hash and json.dumps(whole.to_dict()) == json.dumps(decimal.to_dict())

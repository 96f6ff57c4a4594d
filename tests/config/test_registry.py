"""Names are listed without importing, found on demand, never hidden, and may come from anywhere."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from builder import registry
from builder.checklist import check
from builder.components.norm import Norm
from builder.compose import compose
from builder.load import load
from builder.model.assemble import build

ROOT = Path(__file__).parents[2]
FRESH = """
import json, sys
from builder import registry
parts = lambda: [module for module in sys.modules if module.startswith("builder.components.")]
listed = {room: registry.names(room) for room in registry.ROOMS}
before = parts()
registry.find("norm", "rmsnorm")
after = parts()
from builder.targets import problems
wrong = problems({"trainer": {"_target_": "lightning.Trainer", "max_stepz": 1}})
light = "lightning" not in sys.modules and "torch" in sys.modules
from builder.load import load
config = json.loads(sys.argv[1])
print(json.dumps([listed, before, after, [problem.path for problem in wrong], light, load(config).hash]))
"""
MODULE = '''
from builder.components.attention.gqa import GQA
from builder.components.ffn import FFN
from builder.registry import register

class Far(GQA):
    """Grouped queries of another package."""

class Part(FFN):
    pass

class Bare:
    pass

LIMIT = 3
'''
BROKEN = {"syntax": "def f(:\n", "key": "x = 1\n{}['x']\n", "leaves": "raise SystemExit(3)\n"}


@pytest.fixture(scope="module")
def fresh(composed: dict[str, Any]) -> list[Any]:
    """What a new interpreter, with another order of sets and keys, says."""
    backwards = json.dumps(dict(reversed(composed.items())))
    run = subprocess.run(
        [sys.executable, "-c", FRESH, backwards],
        cwd=ROOT, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONHASHSEED": "7"},
    )  # fmt: skip
    return json.loads(run.stdout)


def test_listing_imports_nothing(fresh: list[Any]):
    listed, before, *_ = fresh
    assert before == []
    assert {"layernorm", "rmsnorm"} <= set(listed["norm"]) and "gqa" in listed["attention"]


def test_finding_imports_that_file_alone(fresh: list[Any]):
    loaded = [module for module in fresh[2] if module.startswith("builder.components.norm.")]
    assert loaded == ["builder.components.norm.rmsnorm"]


def test_lightnings_arguments_are_judged_without_importing_it(fresh: list[Any]):
    *_, wrong, light, _ = fresh
    assert wrong == ["trainer.max_stepz"] and light


def test_the_hash_is_the_same_in_another_process(fresh: list[Any], composed: dict[str, Any]):
    assert fresh[-1] == load(composed).hash


@pytest.mark.parametrize("room", registry.ROOMS)
def test_every_file_of_a_room_registers_under_its_own_name(room: str):
    assert registry.names(room), f"{room} is empty"
    for name in registry.names(room):
        found = registry.find(room, name)
        assert found.Config.component is found
        if found.__module__.startswith("builder."):
            assert found.__module__.endswith(f".{name}")


def test_an_unknown_room_is_refused():
    with pytest.raises(ValueError, match="the rooms are attention, ssm, recurrent, ffn"):
        registry.register("attentoin", "x")


@pytest.mark.parametrize(("name", "near"), [("rmsnormm", "rmsnorm"), ("layer_norm", "layernorm"), ("zzz", None)])
def test_an_unknown_name_tells_the_nearest(name: str, near: str | None):
    with pytest.raises(registry.UnknownName) as caught:
        registry.find("norm", name)
    assert caught.value.nearest == near
    assert name in str(caught.value)


def test_a_second_class_may_not_hide_the_first(own_registry: None):
    first, second = type("First", (Norm,), {}), type("Second", (Norm,), {})
    registry.register("norm", "twice")(first)
    with pytest.raises(ValueError, match=r"Second would hide .*First"):
        registry.register("norm", "twice")(second)
    assert registry.find("norm", "twice") is first


def test_the_same_class_may_register_again(own_registry: None):
    first = type("First", (Norm,), {})
    registry.register("norm", "twice")(first)
    registry.register("norm", "twice")(type("First", (Norm,), {}))  # as a module that is read again does


def test_the_name_of_a_file_that_is_not_imported_yet_is_taken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(registry._known, ("norm", "layernorm"), raising=False)
    with pytest.raises(ValueError, match=r"belongs to builder\.components\.norm\.layernorm"):
        registry.register("norm", "layernorm")(type("Other", (Norm,), {}))


def test_what_is_no_component_of_a_room_is_not_entered():
    with pytest.raises(ValueError, match=r"Linear is no component of ffn: it must derive from builder\..*\.FFN"):
        registry.register("ffn", "plain")(torch.nn.Linear)
    assert "plain" not in registry.names("ffn")


@pytest.fixture
def labparts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_registry: None) -> Path:
    """A package of someone else, importable while the test runs."""
    home = tmp_path / "labparts"
    home.mkdir()
    (home / "__init__.py").touch()
    (home / "mixers.py").write_text(MODULE)
    for name, text in BROKEN.items():
        (home / f"{name}.py").write_text(text)
    (home / "named.py").write_text(MODULE.replace("class Far", '@register("attention", "lab_far")\nclass Far'))
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("labparts", "labparts.mixers", "labparts.named"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return home


def with_far(name: str) -> list[str]:
    small = ["d_model=32", "n_layers=2", "train_length=16", "deploy_length=16", "pattern=[attention+ffn, far]"]
    return [f"model.{change}" for change in [*small, f"far.name={name}", "far.n_heads=4"]]


def test_an_import_path_works_from_the_command_line_to_the_model(labparts: Path):
    spec = load(compose(with_far("labparts.mixers:Far")))
    model = build(spec.model, seed=0)
    mixers = [type(layer.mixer).__qualname__ for layer in model.layers.children()]
    assert mixers == ["GQA", "Far"]
    assert model(torch.zeros(1, 4, dtype=torch.int64)).logits.shape == (1, 4, spec.model.vocab_size)
    assert check(spec).ok
    assert load(spec.to_dict()) == spec


def test_a_class_registered_elsewhere_is_used_by_its_short_name(labparts: Path):
    import labparts.named  # type: ignore[import-not-found]  # noqa: F401

    spec = load(compose(with_far("lab_far")))
    assert type(next(iter(reversed(list(build(spec.model).layers.children())))).mixer).__qualname__ == "Far"
    assert "lab_far" in registry.names("attention")


def test_the_short_name_is_gone_after_the_test():
    assert "lab_far" not in registry.names("attention")


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("labpartz.mixers:Far", "No module named 'labpartz'"),
        ("labparts.mixers:Fat", "has no attribute 'Fat'"),
        ("labparts.mixers:LIMIT", "must derive from builder.components.attention.Mixer"),
        ("labparts.mixers:Bare", "must derive from builder.components.attention.Mixer"),
        ("builder.components.norm.rmsnorm:RMSNorm", "is no component of attention or ssm or recurrent or ffn"),
        (":Far", "can't be imported"),
        (".mixers:Far", "can't be imported"),
        ("labparts.mixers:", "can't be imported"),
        ("labparts.syntax:Far", "can't be imported: SyntaxError: invalid syntax (syntax.py, line 1)"),
        ("labparts.key:Far", "can't be imported: KeyError: 'x' (key.py, line 2)"),
        ("labparts.leaves:Far", "can't be imported: SystemExit: 3 (leaves.py, line 1)"),
    ],
)
def test_an_import_path_that_leads_nowhere_is_named(
    path: str, reason: str, labparts: Path, edited: Callable[..., Any], refused: Callable[..., Any]
):
    found = refused(edited({"model.attention.name": path}))
    assert list(found) == ["model.attention.name"]
    problem = found["model.attention.name"]
    assert path in problem.found and reason in problem.rule
    assert problem.fix.startswith(
        "mend the module" if path.rpartition(".")[2][:-4] in BROKEN else "model.attention.name="
    )


@pytest.mark.parametrize(("module", "said"), [("key", "KeyError: 'x'"), ("mixers", "enters no class under this name")])
def test_a_file_of_a_room_that_gives_no_component_is_named(
    module: str, said: str, labparts: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(registry, "_files", lambda room: ["own"])
    monkeypatch.setattr(registry, "_module", lambda room, name: f"labparts.{module}")
    with pytest.raises(registry.UnknownName, match=said):
        registry.find("norm", "own")


@pytest.mark.parametrize(
    ("slot", "name", "meant"),
    [
        ("attention", "labparts.mixers:Fat", "labparts.mixers:Far"),
        ("attention", "labparts.mixers:", "labparts.mixers:Far"),
        ("attention", "labparts.mixers", "labparts.mixers:Far"),
        ("attention", "labparts.mixers.Far", "labparts.mixers:Far"),
        ("ffn", "labparts.mixers:Fat", "labparts.mixers:Part"),
        ("ffn", "gluu", "glu"),
        ("attention", "moo", "..."),  # not moe, which is no mixer
        ("attention", "mlpp", "mla"),
    ],
)
def test_a_name_that_is_meant_is_one_that_may_stand_there(
    slot: str, name: str, meant: str, labparts: Path, edited: Callable[..., Any], refused: Callable[..., Any]
):
    found = refused(edited({f"model.{slot}.name": name}))
    assert found[f"model.{slot}.name"].fix == f"model.{slot}.name={meant}"


def test_the_room_of_an_import_path_is_kept(edited: Callable[..., Any]):
    spec = load(edited({"model.norm.name": "builder.components.norm.layernorm:LayerNorm"}))
    assert spec.model.norm.component is registry.find("norm", "layernorm")

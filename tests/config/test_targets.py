"""Other people's classes are judged by their source: where they are, what they take, and of which type."""

import sys
from pathlib import Path
from typing import Any

import pytest

from builder import targets
from builder.compose import compose
from builder.errors import Problem, shown
from builder.load import load

CHECKPOINT = "builder.training.callbacks.checkpoint"
SOURCE = """
from typing import Any, Literal, Optional, Union
from .deep import Hidden as Shown, Gone
from .starred import *

class Plain:
    def __init__(self, count: int, rate: float = 0.5, mode: Literal["a", "b"] = "a", other: Any = None):
        self.given = {"count": count, "rate": rate, "mode": mode, "other": other}

    def method(self): ...

class Open:
    def __init__(self, first: Optional[int] = None, **rest):
        self.given = {"first": first} | rest

class Union_:
    def __init__(self, x: Union[int, str, None] = None, y: int | float = 1, z: "int" = 1): ...

class Bare: ...

def function(word: str, *, flag: bool = False): return {"word": word, "flag": flag}

made = Plain

if True:
    def guarded(inside: int): ...
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of someone else; its name is new each time, since what was read of a file is kept."""
    name = f"lab_{tmp_path.name.replace('-', '_')}"
    home = tmp_path / name
    (home / "sub").mkdir(parents=True)
    (home / "__init__.py").write_text(SOURCE)
    (home / "deep.py").write_text("class Hidden:\n    def __init__(self, depth: int): self.given = depth\nGone = 1\n")
    (home / "starred.py").write_text("class Star:\n    def __init__(self, light: int): ...\n")
    (home / "wrong.py").write_text("def f(:\n")
    (home / "lazy.py").write_text("def __getattr__(name): return dict\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


def judged(target: Any, **arguments: Any) -> list[Problem]:
    return targets.problems({"callbacks": {"x": {"_target_": target, **arguments}}})


def test_a_module_that_is_no_python_is_told_with_its_line(lab: str):
    (problem,) = judged(f"{lab}.wrong.f")
    assert "can't be imported: SyntaxError: invalid syntax (wrong.py, line 1)" in problem.rule


@pytest.mark.parametrize(
    ("name", "wrong", "fix"),
    [
        ("Plain", "cuont", "count"),
        ("Shown", "dept", "depth"),
        ("Star", "ligth", "light"),
        ("function", "wrod", "word"),
        ("guarded", "insid", "inside"),
    ],
)
def test_an_argument_that_is_not_taken_is_refused(name: str, wrong: str, fix: str, lab: str):
    (problem,) = judged(f"{lab}.{name}", **{wrong: 1})
    assert (problem.path, problem.found, problem.fix) == (
        f"callbacks.x.{wrong}",
        "1",
        f"did you mean callbacks.x.{fix}?",
    )
    assert "takes no such argument" in problem.rule and fix in problem.rule
    assert lab not in sys.modules, "it was imported to be judged"


@pytest.mark.parametrize(
    "target",
    [
        "lightning.Trainer",
        "lightning.pytorch.Trainer",
        "lightning.pytorch.callbacks.EarlyStopping",
        "torch.optim.SGD",
        "builder.experiments.wandb.logger",
    ],
)
def test_re_exports_are_followed(target: str):
    (problem,) = judged(target, no_such_argument=1)
    assert problem.path == "callbacks.x.no_such_argument"


@pytest.mark.parametrize(("name", "key"), [("Open", "anything"), ("Bare", "x"), ("made", "x"), ("lazy.Some", "x")])
def test_what_takes_anything_or_can_not_be_read_is_left_alone(name: str, key: str, lab: str):
    assert judged(f"{lab}.{name}", **{key: 1}) == []


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"count": 1.5}, "must be a valid integer"),
        ({"count": "1"}, "must be a valid integer"),
        ({"count": True}, "must be a valid integer"),
        ({"rate": "fast"}, "must be a valid number"),
        ({"rate": True}, "must be a valid number"),
        ({"mode": "c"}, "must be 'a' or 'b'"),
    ],
    ids=str,
)
def test_a_wrong_type_is_refused(arguments: dict[str, Any], rule: str, lab: str):
    (problem,) = judged(f"{lab}.Plain", **arguments)
    ((key, value),) = arguments.items()
    assert (problem.path, problem.found, problem.rule) == (f"callbacks.x.{key}", shown(value), rule)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Plain", {"count": 1, "rate": 1, "mode": "b", "other": [1]}),
        ("Open", {"first": None}),
        ("Union_", {"x": None, "y": 2.5, "z": "unread"}),
        ("Union_", {"x": "text"}),
        ("function", {"word": "a", "flag": True}),
    ],
    ids=str,
)
def test_right_arguments_pass(name: str, arguments: dict[str, Any], lab: str):
    assert judged(f"{lab}.{name}", **arguments) == []


@pytest.mark.parametrize(
    ("name", "arguments"), [("Open", {"first": "1"}), ("Union_", {"x": 1.5}), ("Union_", {"y": "1"})], ids=str
)
def test_optional_and_union_are_read(name: str, arguments: dict[str, Any], lab: str):
    assert [problem.path for problem in judged(f"{lab}.{name}", **arguments)] == [
        f"callbacks.x.{next(iter(arguments))}"
    ]


@pytest.mark.parametrize(
    ("target", "said", "fix"),
    [
        ("no_such_package.Thing", "installed", ""),
        ("Trainer", "import path", ""),
        ("lightning", "import path", ""),
        ("", "import path", ""),
        (".x", "import path", ""),
        ("a b.c", "import path", ""),
        (None, "import path", ""),
        (3, "import path", ""),
        ("lightning.Trainor", "lightning has no Trainor", "lightning.Trainer"),
        ("lightning.fit", "lightning has no fit", ""),
        ("lightning.Trainer.fit", "no module lightning.Trainer", ""),
        (f"{CHECKPOINT}.Bestt", f"{CHECKPOINT} has no Bestt", f"{CHECKPOINT}.Best"),
        ("builder.training.nowhere.Best", "no module builder.training.nowhere", ""),
        ("lightning.pytorch.callbacks.EarlyStoping", "no EarlyStoping", "lightning.pytorch.callbacks.EarlyStopping"),
    ],
)
def test_a_target_that_is_not_there_is_refused(target: Any, said: str, fix: str):
    (problem,) = judged(target, x=1)
    assert (problem.path, problem.found) == ("callbacks.x._target_", shown(target))
    assert said in problem.rule and problem.fix == (f"did you mean {fix}?" if fix else "")


def test_a_method_is_no_member_of_its_module(lab: str):
    assert f"{lab} has no method" in judged(f"{lab}.method")[0].rule


@pytest.mark.parametrize("target", ["sys.exit", "os.getcwd", "time.sleep", "torch._C.Tag", "collections.OrderedDict"])
def test_a_target_without_source_is_left_alone(target: str):
    assert judged(target) == []


def test_nodes_inside_nodes_are_judged(lab: str):
    inner = {"_target_": f"{lab}.Plain", "cuont": 1}
    config = {"trainer": {"_target_": f"{lab}.Open", "strategy": inner, "plugins": [{"deep": inner}]}}
    paths = [problem.path for problem in targets.problems(config)]
    assert paths == ["trainer.strategy.cuont", "trainer.plugins.0.deep.cuont"]


@pytest.mark.parametrize(
    ("config", "path", "fix"),
    [
        ({"trainer": {"devices": 1}}, "trainer", "trainer=auto"),
        ({"callbacks": {"best": {"_target_": "sys.exit"}, "bset": {"x": 1}}}, "callbacks.bset", "callbacks.best"),
        ({"logger": {"wandb": {"project": "x"}}}, "logger.wandb", "logger.wandb._target_=..."),
    ],
)
def test_a_node_without_target_is_refused(config: dict[str, Any], path: str, fix: str):
    (problem,) = targets.problems(config)
    assert problem.path == path and fix in problem.fix and "_target_" in problem.rule


def test_every_target_of_the_default_config_is_right_and_a_change_is_seen():
    config = compose()
    assert targets.problems(config) == []
    assert load(config)
    config["callbacks"]["best"]["monitr"] = 1
    assert len(targets.problems(config)) == 1


def test_instantiate_gives_what_the_target_takes_and_no_more(lab: str):
    made = targets.instantiate({"_target_": f"{lab}.Plain", "count": 3}, rate=0.25, other="x", folder="unasked")
    assert made.given == {"count": 3, "rate": 0.25, "mode": "a", "other": "x"}
    assert targets.instantiate({"_target_": f"{lab}.function", "word": "a"}, flag=True) == {"word": "a", "flag": True}


def test_instantiate_leaves_an_open_target_what_it_does_not_name(lab: str):
    assert targets.instantiate({"_target_": f"{lab}.Open", "extra": 1}, first=2, folder="unasked").given == {
        "first": 2,
        "extra": 1,
    }


def test_instantiate_makes_the_nodes_inside_first(lab: str):
    inner = {"_target_": f"{lab}.Shown", "depth": 3}
    node = {"_target_": f"{lab}.Plain", "count": 1, "other": [inner, {"in": inner}]}
    first, second = targets.instantiate(node).given["other"]
    assert (first.given, second["in"].given) == (3, 3)
    assert inner == {"_target_": f"{lab}.Shown", "depth": 3}

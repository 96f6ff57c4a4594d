"""A family of models of transformers, as tables that serve import and export alike.

A family is one file, `families/<model_type>.py`, with one subclass of Family; it is found by being there. It says

    model_type, architecture   as in config.json
    fixed     what every model of the family has, {our dotted path: value}: names of slots, knobs that no field sets
    fields    Field(ours, theirs, default, code): a knob and the field it is, read and written by the same line;
              `default` is what their code takes where the field is missing. Rope(...) is the entry for rotary positions
    neutral   fields that change nothing, {their dotted path: ANY, or the values at which they change nothing}
    rules     Rule(theirs, ours, form): modules, by layer `{n}`; weights and biases follow from our model. Experts that
              lie apart in their files are one tensor of ours: `{e}` in theirs
    ignorable patterns of tensors in their files that are no parameters: masks, tables of angles
    ids       ids of tokens that a config.json has to state where no tokenizer is told, and with what
    copies    {theirs: ours}: tensors that their files may hold a second time; they are compared
    renamed   {theirs: theirs now}: ends of names, as older files have them
    widening  d_ff as a multiple of d_model, where no field states it
    base      what their files leave out of every name when the model was saved without its head

A family that derives from another adds to its tables: `fields = (*Llama.fields, Field(...))`. What no table can say is
said by overriding `read` and `write`, which see the whole config and all facts (windows.py and hybrid.py do, for layers
that differ, mixture.py, for experts, heads.py, for several heads, and towers.py, for what reads a source);
`read(write(facts))` must give the facts back, which is how export knows what a family can express. What their config
doesn't say but another file does, `beside` finds out: it is read and written as fields below `beside`. Nothing is read
by guess: a field that neither table names is refused when it is met, and a parameter of ours that no rule names is an
error. Then add a tiny config of the family to tests/interop/cases.py: everything in test_families.py is asked of every
family, and of those that read in both directions what is in test_encoders.py.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from builder.errors import ArchlabError, ConfigError, Problem, nearest
from builder.load import read as read_schema
from builder.spec import ModelSpec

from .facts import Facts
from .field import Entry, Field
from .hf_config import HFConfig
from .rule import Rule
from .weights import Weights

_HOME = Path(__file__).parent / "families"
_KEY = re.compile(r"(?<![\w.])([a-z_][\w.]*)=")
"""One of our keys, where a rule or a fix names it."""


class Family:
    """One model_type of transformers; the module's docstring says how one is written."""

    model_type: ClassVar[str]
    architecture: ClassVar[str]
    fixed: ClassVar[Mapping[str, Any]] = {}
    fields: ClassVar[tuple[Entry, ...]] = ()
    neutral: ClassVar[Mapping[str, Any]] = {}
    rules: ClassVar[tuple[Rule, ...]] = ()
    ignorable: ClassVar[tuple[str, ...]] = ()
    ids: ClassVar[Mapping[str, int | None]] = {}
    copies: ClassVar[Mapping[str, str]] = {}
    renamed: ClassVar[Mapping[str, str]] = {}
    base: ClassVar[str] = ""
    widening: ClassVar[int | None] = None
    everywhere: ClassVar[tuple[Entry, ...]] = (
        Field("vocab_size", "vocab_size"),
        Field("init.std", "initializer_range", 0.02),
    )
    """Fields that every config.json has."""

    def entries(self, config: HFConfig) -> tuple[Entry, ...]:
        """The table of fields for this config."""
        return (*self.everywhere, *self.fields)

    def beside(self, files: Weights) -> dict[str, Any]:
        """What the other files of a folder say that its config.json doesn't."""
        return {}

    def read(self, config: HFConfig) -> dict[str, Any]:
        """Our model section, as plain Python that ModelSpec judges."""
        section: dict[str, Any] = {}
        put(section, {"init.name": "normal", **self.fixed})
        for entry in self.entries(config):
            put(section, {path: value for path, value in entry.read(config).items() if value is not None})
        if self.widening is not None and "d_model" in section:
            section["ffn"].setdefault("d_ff", self.widening * section["d_model"])
        return section

    def write(self, facts: Facts) -> dict[str, Any]:
        """The fields of config.json, as far as the family has them for this model."""
        fields: dict[str, Any] = {}
        for entry in (*self.everywhere, *self.fields):
            put(fields, entry.write(facts))
        return fields

    def tensors(self, facts: Facts) -> Iterable[Rule]:
        """The table of tensors; `facts` for forms that need a number, such as Grouped(d_head)."""
        return self.rules

    def idle(self, facts: Facts) -> dict[str, Tensor]:
        """Tensors that their class asks for and that nothing of ours is in, since they change nothing."""
        return {}

    def spec(self, config: HFConfig) -> ModelSpec:
        """The ModelSpec of a config; raises ConfigError with every field that can't be served."""
        section = self.read(config)
        config.finish(self.neutral, self.model_type)
        try:
            return read_schema(ModelSpec, section)
        except ConfigError as error:
            raise ConfigError(self.theirs(problem, config) for problem in error.problems) from None

    def theirs(self, problem: Problem, config: HFConfig) -> Problem:
        """A problem of our section, told of the fields that it was read from: its path, what its rule says of others,
        and what to write."""
        names: dict[str, str] = {}
        for entry in self.entries(config):
            names |= entry.names(config)
        path = problem.path.removeprefix("model.")
        home = path.rpartition(".")[0]

        def called(key: str) -> str:
            """The field of one of our keys, which may belong to another slot that was read from the same ones; "" for
            none."""
            own = key if "." in key else f"{home}.{key}"
            same = {field for ours, field in names.items() if ours.rpartition(".")[2] == own.rpartition(".")[2]}
            return names.get(own, same.pop() if len(same) == 1 else "")

        found = called(path)
        while not found and path:
            path = path.rpartition(".")[0]
            found = names.get(path, "")
        theirs = f"{config.where}: {found}" if found else config.where
        rule = _KEY.sub(lambda key: f"{called(key[1]) or key[1]}=", problem.rule)
        keys = [called(key.removeprefix("model.")) for key in _KEY.findall(problem.fix)]
        fix = _KEY.sub(lambda key: f'"{called(key[1].removeprefix("model."))}": ', problem.fix) if all(keys) else ""
        told = f"{theirs} (ours: {problem.path})" if problem.path else theirs
        return replace(problem, path=told, rule=rule, fix=fix or "a config.json of a model that can be built")

    def note(self, facts: Facts, config: HFConfig) -> str:
        """What whoever brings in this model should know of it; "" for nothing."""
        return ""

    def judge_depth(self, config: HFConfig, names: Iterable[str]) -> None:
        """Raises ConfigError when the config states more layers than a file with tensors of these names has."""
        names = tuple(names)
        for field in self.entries(config):
            if not isinstance(field, Field) or field.ours not in ("n_layers", "encoder.n_layers"):
                continue
            stated, there = field.read(config)[field.ours], self._depth(names, field.ours.removesuffix("n_layers"))
            if stated is not None and stated > there:
                rule = f"the tensors in the folder are of {there} layers"
                config.refuse(field.names(config)[field.ours], rule, f"{there}")
        config.judge()

    def _depth(self, names: Iterable[str], tower: str) -> int:
        """How many layers of a tower tensors of these names are of."""
        layers = [rule for rule in self.rules if "{n}" in rule.theirs and tower == _tower(rule)]
        before = {rule.theirs.partition("{n}")[0].removeprefix(self.base) for rule in layers}
        layer = re.compile(rf"(?:{re.escape(self.base)})?(?:{'|'.join(map(re.escape, before))})(\d+)\.")
        return 1 + max((int(found[1]) for name in names if (found := layer.match(name))), default=-1)

    def spelt(self, name: str) -> str:
        """The name of a tensor in a file, as their code spells it now."""
        ends = (old for old in self.renamed if name.endswith(old))
        old = next(ends, "")
        return name.removesuffix(old) + self.renamed[old] if old else name

    def ignores(self, name: str) -> bool:
        """Whether a tensor of that name in a file is no parameter."""
        return any(re.fullmatch(pattern, name) for pattern in self.ignorable)


def _tower(rule: Rule) -> str:
    ours = rule.ours if isinstance(rule.ours, str) else rule.ours[0]
    return "encoder." if ours.startswith("encoder.") else ""


def put(tree: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Puts values at dotted paths into a nested dict; dicts are merged, anything else replaced."""
    for path, value in values.items():
        *parents, key = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        if isinstance(value, Mapping):
            put(node.setdefault(key, {}), value)
        else:
            node[key] = value


def model_types() -> list[str]:
    """The model types that there is a family for; nothing is imported to list them."""
    return sorted(file.stem for file in _HOME.glob("*.py") if not file.stem.startswith("_"))


def find(model_type: Any, where: str = "model_type") -> Family:
    """The family of a model type; raises ArchlabError, with the nearest name, when there is none.

    where   the key that states it, with its file where that is one
    """
    if not isinstance(model_type, str) or model_type not in model_types():
        close = nearest(str(model_type), model_types())
        hint = f"; did you mean {close}?" if close else ""
        raise ArchlabError(
            f"{where}: found {model_type!r}, and the families known here are {', '.join(model_types())}{hint}"
        )
    return _loaded(model_type)


@cache
def _loaded(model_type: str) -> Family:
    module = importlib.import_module(f"{__package__}.families.{model_type}")
    classes = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Family))
    (found,) = (value for value in classes if value.__module__ == module.__name__)
    return found()

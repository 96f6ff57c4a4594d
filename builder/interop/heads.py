"""Families of one model_type in several classes, which differ in what stands behind their layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from builder.registry import find

from .facts import Facts
from .family import Family, put
from .field import Entry, Field, agrees
from .hf_config import HFConfig
from .rule import Rule
from .sentence import read_modules
from .weights import Weights

LANGUAGE_MODEL = {"name": "language_model", "bias": True, "transform_norm": {"name": "layernorm"}}
"""The head of a masked language model, as BERT has it."""
UNNAMED = "LABEL_"
"""How transformers calls a class, before its number, that nobody named."""
TIED = Field("tie_embeddings", "tie_word_embeddings", True)


@dataclass(frozen=True)
class Top:
    """One class of transformers: its head as one of ours, and the fields and tensors that are that head's.

    bare     its files name their tensors without the family's base
    pooled   sentence-transformers' files say how its rows become vectors
    needs    tensors of its class that nothing reads, and how often d_model their sides are
    """

    architecture: str
    head: Mapping[str, Any]
    fields: tuple[Entry, ...] = ()
    rules: tuple[Rule, ...] = ()
    bare: bool = False
    pooled: bool = False
    needs: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Classes(Entry):
    """How many classes a head tells apart: the labels that they are given names for."""

    ours: str = "head.n_classes"

    def read(self, config: HFConfig) -> dict[str, Any]:
        labels = config.get("id2label")
        count = len(labels) if isinstance(labels, Mapping) and labels else config.get("num_labels", 2)
        if not isinstance(count, int) or count < 2:
            config.refuse("num_labels", "at least two classes: a single number would be a regression")
            config.judge()
        return {self.ours: count}

    def names(self, config: HFConfig) -> dict[str, str]:
        return {self.ours: "id2label" if config.states("id2label") else "num_labels"}

    def write(self, facts: Facts) -> dict[str, Any]:
        return named([f"{UNNAMED}{index}" for index in range(facts.get(self.ours, 0))])


def named(labels: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The fields by which classes have names, in the order of their numbers."""
    return {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }


def labels_in(config: HFConfig) -> tuple[str, ...]:
    """The names that a config gives its classes, () where it only counts them."""
    stated = config.get_section("id2label")
    names = tuple(str(stated.get(str(index))) for index in range(len(stated)))
    return () if all(name.startswith(UNNAMED) for name in names) else names


@dataclass(frozen=True)
class Either(Entry):
    """`ours` is the first of their fields that is set; written as the first."""

    ours: str
    theirs: tuple[str, ...]
    default: Any

    def read(self, config: HFConfig) -> dict[str, Any]:
        path = next((path for path in self.theirs if config.get(path) is not None), self.theirs[0])
        value = config.get(path, self.default)
        if not isinstance(value, int | float) or isinstance(value, bool):
            config.refuse(path, "a number")
            config.judge()
        return {self.ours: float(value)}

    def names(self, config: HFConfig) -> dict[str, str]:
        return {self.ours: next(filter(config.states, self.theirs), self.theirs[0])}

    def write(self, facts: Facts) -> dict[str, Any]:
        return {self.theirs[0]: value} if (value := facts.get(self.ours)) is not None else {}


class Headed(Family):
    """`architectures` in config.json says which of the classes it is of, or sentence-transformers' files do."""

    tops: ClassVar[tuple[Top, ...]]

    def beside(self, files: Weights) -> dict[str, Any]:
        return read_modules(files.folder)

    def top(self, config: HFConfig) -> Top:
        """The class that a config is of; raises ConfigError where it names none of ours."""
        if config.get("beside.pooling") is not None:
            for top in filter(lambda top: top.pooled, self.tops):
                return top
        known = {top.architecture: top for top in self.tops if not top.pooled}
        stated = config.get("architectures")
        found = [known[name] for name in stated or () if name in known] if isinstance(stated, list) else []
        if len(found) != 1:
            also = ", or a folder that sentence-transformers saved" if any(top.pooled for top in self.tops) else ""
            config.refuse("architectures", f"the class that it is of, one of {', '.join(known)}{also}")
            config.judge()
        return found[0]

    def entries(self, config: HFConfig) -> tuple[Entry, ...]:
        return (*super().entries(config), *self.top(config).fields)

    def read(self, config: HFConfig) -> dict[str, Any]:
        section, top = super().read(config), self.top(config)
        put(section, {"head": top.head})
        if find("head", top.head["name"]).gives != "tokens":  # nothing there is tied, whatever the field says
            config.get("tie_word_embeddings")
            section["tie_embeddings"] = False
        if top.pooled:
            head = {"pooling": {"name": config["beside.pooling"]}, "normalise": config.get("beside.normalise")}
            config.get("beside.width")
            put(section, {"head": head})
        return section

    def write(self, facts: Facts) -> dict[str, Any]:
        top = self._top_of(facts)
        fields = super().write(facts)
        for entry in top.fields:
            put(fields, entry.write(facts))
        if top.pooled:
            pooled = {"pooling": facts["head.pooling.name"], "normalise": facts["head.normalise"]}
            fields["beside"] = pooled | {"width": facts["d_model"]}
        return fields | {"architectures": [top.architecture]}

    def tensors(self, facts: Facts) -> Iterable[Rule]:
        top = self._top_of(facts)
        rules = (*self.rules, *top.rules)
        return [replace(rule, theirs=rule.theirs.removeprefix(self.base)) for rule in rules] if top.bare else rules

    def idle(self, facts: Facts) -> dict[str, Tensor]:
        needs, width = self._top_of(facts).needs or {}, facts["d_model"]
        return {name: torch.zeros((width,) * sides) for name, sides in needs.items()}

    def _top_of(self, facts: Facts) -> Top:
        """The class whose head a model has; the first, which export will find to differ, where none has it."""
        fitting = (top for top in self.tops if agrees(facts["head"], top.head))
        return next(fitting, self.tops[0])

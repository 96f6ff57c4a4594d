"""A field of a Hugging Face config and the knob it stands for, in one line that serves both directions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .facts import Facts
from .hf_config import HFConfig

_COUNTS = ("d_model", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_ff", "vocab_size", "train_length")
_COUNTS += ("n_experts", "top_k", "n_groups", "top_groups", "q_rank", "kv_rank", "d_rope", "d_value")
_COUNTS += ("d_state", "d_conv", "d_key", "n_key_heads", "chunk")
REQUIRED = object()
"""The default of a field that every config.json has."""


class Entry(ABC):
    """A line of a family's table of fields."""

    @abstractmethod
    def read(self, config: HFConfig) -> dict[str, Any]:
        """What the fields say, as {our dotted path: value}; a value that can't be served is refused on `config`."""

    @abstractmethod
    def names(self, config: HFConfig) -> dict[str, str]:
        """The field that each of our dotted paths was read from, as the config spells it."""

    @abstractmethod
    def write(self, facts: Facts) -> dict[str, Any]:
        """The fields, as {their dotted path: value}, as far as the model has such knobs."""


class Code(ABC):
    """How a value is spelt on either side; the values it doesn't know raise KeyError."""

    @abstractmethod
    def ours(self, value: Any) -> Any:
        """Their value in our spelling."""

    @abstractmethod
    def theirs(self, value: Any) -> Any:
        """Our value in their spelling."""

    rule: str = ""
    """What is allowed on their side, in words."""
    none: bool = False
    """Whether our None is a value that it spells."""


class Choice(Code):
    """A few values, {theirs: ours}; where two of theirs mean one of ours, the first is written.

    One of ours may be a part of a slot, {"name": "parallel", "norms": 2}: it stands for any slot that agrees with it.
    """

    def __init__(self, table: Mapping[Any, Any]):
        self.table = table
        self.rule = f"one of {', '.join(map(str, table))}"
        self.none = None in table.values()

    def ours(self, value: Any) -> Any:
        return self.table[value]

    def theirs(self, value: Any) -> Any:
        for theirs, ours in self.table.items():
            if agrees(value, ours):
                return theirs
        raise KeyError(value)


@dataclass(frozen=True)
class Formula(Code):
    """A value computed from theirs, and back."""

    to_ours: Callable[[Any], Any]
    to_theirs: Callable[[Any], Any]
    rule: str = ""

    def ours(self, value: Any) -> Any:
        return self.to_ours(value)

    def theirs(self, value: Any) -> Any:
        return self.to_theirs(value)


SAME = Formula(lambda value: value, lambda value: value)
FLAG = Choice({False: False, True: True})
"""A switch of theirs where ours knows more than on and off."""
ACTIVATION = Choice(
    {
        "silu": "silu",
        "swish": "silu",
        "gelu": "gelu",
        "gelu_python": "gelu",
        "gelu_pytorch_tanh": "gelu_tanh",
        "gelu_new": "gelu_tanh",
        "gelu_fast": "gelu_tanh",
        "gelu_python_tanh": "gelu_tanh",
        "relu": "relu",
        "relu2": "relu_squared",
        "quick_gelu": "quick_gelu",
    }
)
"""Activations by the names of transformers.activations.ACT2FN."""


@dataclass(frozen=True)
class Field(Entry):
    """`theirs` of config.json is `ours` of the model section: dotted paths, several of ours at once when they agree.

    Of several spellings of theirs the first that is set is read, and the first is written. `default` is what their
    code takes where the field is missing or null. A `nullable` field says by null that there is no such thing.
    """

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    default: Any = REQUIRED
    code: Code = SAME
    nullable: bool = False

    def read(self, config: HFConfig) -> dict[str, Any]:
        spellings = _tuple(self.theirs)
        found = {path: value for path in spellings if (value := config.get(path)) is not None}
        if not found and self.default is REQUIRED:
            found = {spellings[0]: config[spellings[0]]}
        null = self.nullable and any(map(config.states, spellings))
        path, value = next(iter(found.items()), (spellings[0], None if null else self.default))
        for other, second in found.items():
            if other != path and second != value:
                config.refuse(other, f"it is another name of {path}, which is {value}")
        if not found and not null and isinstance(self.default, int) and any(map(config.states, spellings)):
            config.refuse(path, f"a value: null is none, and {self.default} is taken only where the field is missing")
        counts = any(ours.rpartition(".")[2] in _COUNTS for ours in _tuple(self.ours))
        if counts and value is not None:
            count(config, path, value, f"(ours: {', '.join(_tuple(self.ours))})")
        try:
            value = value if value is None else self.code.ours(value)
        except (KeyError, TypeError):
            config.refuse(path, self.code.rule)
        return dict.fromkeys(_tuple(self.ours), value)

    def names(self, config: HFConfig) -> dict[str, str]:
        stated = next(filter(config.states, _tuple(self.theirs)), _tuple(self.theirs)[0])
        return dict.fromkeys(_tuple(self.ours), stated)

    def write(self, facts: Facts) -> dict[str, Any]:
        missing = object()
        values = [value for path in _tuple(self.ours) if (value := facts.get(path, missing)) is not missing]
        if not values:
            return {}
        try:
            value = self.code.theirs(values[-1]) if values[-1] is not None or self.code.none else None
        except (KeyError, TypeError, ValueError):  # nothing of theirs means this; what is read back will show it
            return {}
        return {_tuple(self.theirs)[0]: value}


@dataclass(frozen=True)
class Multiple(Entry):
    """`ours` is a width that they state as `theirs` times hidden_size, or by itself as `whole`, which goes before."""

    ours: str
    theirs: str
    default: int
    whole: str = ""

    def read(self, config: HFConfig) -> dict[str, Any]:
        times = count(config, self.theirs, self.default, f"(ours: {self.ours} over d_model)")
        width = times * config["hidden_size"]
        return {self.ours: count(config, self.whole, width, f"(ours: {self.ours})") if self.whole else width}

    def names(self, config: HFConfig) -> dict[str, str]:
        return {self.ours: self.whole if self.whole and config.states(self.whole) else self.theirs}

    def write(self, facts: Facts) -> dict[str, Any]:
        width = facts.get(self.ours, 0)
        times, rest = divmod(width, facts["d_model"])
        whole = {self.whole: width} if width and self.whole else {}
        return whole | ({self.theirs: times} if times and not rest else {})


def count(config: HFConfig, path: str, default: int, means: str) -> int:
    """A field that others are computed from; what is no number of at least 1 is refused at once."""
    value = config.get(path, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        config.refuse(path, f"a whole number of at least 1 {means}")
        config.judge()
    return value


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def agrees(value: Any, part: Any) -> bool:
    """Whether a value is the one asked for; of a slot whether it has all knobs that are asked for."""
    if isinstance(part, Mapping) and isinstance(value, Mapping):
        return all(key in value and agrees(value[key], inner) for key, inner in part.items())
    return value == part and isinstance(value, bool) == isinstance(part, bool)

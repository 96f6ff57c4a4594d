"""Rotary positions in config.json, in the spelling of transformers 5 and in that of all versions before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.errors import shown

from .facts import Facts
from .field import Entry
from .hf_config import HFConfig

# rope_type -> what its section may hold beside theta; the names are ours too, and so are those of the types
_KNOBS = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim", "truncate"),
    "longrope": ("short_factor", "long_factor", "factor", "attention_factor"),
}
_SPELLINGS = {"su": "longrope"}
_LENGTH = "original_max_position_embeddings"
_OLD_THETAS = ("rope_theta", "rotary_emb_base")
_OLD_PARTS = ("partial_rotary_factor", "rotary_pct")
_Places = dict[str, tuple[str, ...]]
_STATES_NO_LENGTH = ("linear", "dynamic")  # dynamic stretches from max_position_embeddings on


@dataclass(frozen=True)
class Rope(Entry):
    """A rope slot at our path `ours` <-> `rope_parameters`; before: `rope_theta`, `rope_scaling`, a partial factor.

    section    the key below rope_parameters where layers differ, e.g. "sliding_attention"
    theta      what their code takes when the file states none; `fraction` too, None where it knows whole heads only
    theta_names      fields that stated theta before, `fraction_names` those that stated the fraction
    scaling_name     the field that stated the scaling before; "": none
    pairing    which coordinates turn together: "half" or "interleaved"; no weight is permuted for it
    """

    ours: str = "position"
    section: str = ""
    theta: float = 10000.0
    fraction: float | None = 1.0
    theta_names: tuple[str, ...] = ("rope_theta",)
    fraction_names: tuple[str, ...] = ("partial_rotary_factor",)
    scaling_name: str = "rope_scaling"
    pairing: str = "half"

    def read(self, config: HFConfig) -> dict[str, Any]:
        new = f"rope_parameters.{self.section}" if self.section else "rope_parameters"
        old = bool(self.scaling_name and config.get_section(self.scaling_name))
        # their code takes the old section instead of the new one, but for one kind of layers it adds it
        read, passed = ([self.scaling_name], [new]) if old and not self.section else ([new], [])
        read += [self.scaling_name] if old and self.section else []
        places, over = _places(config, read), _places(config, passed)
        theta = (*places.pop("rope_theta", ()), *self.theta_names)
        part = (*places.pop("partial_rotary_factor", ()), *self.fraction_names)
        olds = () if self.section else _OLD_THETAS  # that of one kind of layers is none of the other's business
        theta_over = (*over.pop("rope_theta", ()), *(name for name in olds if name not in theta))
        part_over = (*over.pop("partial_rotary_factor", ()), *(name for name in _OLD_PARTS if name not in part))
        slot = {
            "name": "rope",
            "theta": _number(config, theta, theta_over, self.theta),
            "fraction": self._fraction(config, part, part_over),
            "scaling": self._scaling(config, places, over),
        }
        slot |= {"pairing": self.pairing} if self.pairing != "half" else {}
        return {self.ours: {key: value for key, value in slot.items() if value is not None}}

    def _fraction(self, config: HFConfig, paths: Sequence[str], over: Sequence[str]) -> float:
        """The part of a head that is turned."""
        part = _number(config, paths, over, 1.0 if self.fraction is None else self.fraction)
        if self.fraction is None and part != 1.0:
            stated = next(path for path in paths if config.get(path) is not None)
            config.refuse(stated, "models of this family turn whole heads, whatever stands here", "1.0")
        for path in paths if self.fraction not in (None, 1.0) else ():
            if config.states(path) and config.get(path) is None:  # null is not the family's fraction in their code
                config.refuse(path, f"a number; {self.fraction} is taken only where the field is missing", f"{part}")
        return part

    def _scaling(self, config: HFConfig, places: _Places, over: _Places) -> dict[str, Any] | None:
        where = places.pop("rope_type", ())
        stated = _one(config, where, over.pop("rope_type", ()), "default")
        kind = _SPELLINGS.get(stated, stated) if isinstance(stated, str) else stated
        if kind == "default":
            return None
        if not isinstance(kind, str) or kind not in _KNOBS:
            config.refuse(where[0], f"one of default, {', '.join(_KNOBS)}", "a model with one of these")
            return None
        known = _KNOBS[kind] if kind in _STATES_NO_LENGTH else (*_KNOBS[kind], _LENGTH)
        values = {
            key: _one(config, places.get(key, ()), over.get(key, ()))
            for key in dict.fromkeys((*places, *over))
            if key in known
        }
        if _LENGTH in known and self.section:  # beside sections it is passed over
            _one(config, places.get(_LENGTH, ()), (_LENGTH,), config.get("max_position_embeddings"))
        elif _LENGTH in known:  # beside the only one it counts, when the angles are made
            values[_LENGTH] = _one(config, (_LENGTH, *places.get(_LENGTH, ())), over.get(_LENGTH, ()))
        values["original_length"] = values.pop(_LENGTH, None)
        return {"name": kind} | {key: value for key, value in values.items() if value is not None}

    def names(self, config: HFConfig) -> dict[str, str]:
        new = f"rope_parameters.{self.section}" if self.section else "rope_parameters"
        old = self.scaling_name if self.scaling_name and config.get_section(self.scaling_name) else new
        thetas = (f"{new}.rope_theta", f"{old}.rope_theta", *self.theta_names)
        theta = next(filter(config.states, thetas), thetas[0])
        return {f"{self.ours}.theta": theta, f"{self.ours}.scaling": old, self.ours: new}

    def write(self, facts: Facts) -> dict[str, Any]:
        slot = facts.get(self.ours)
        if not isinstance(slot, Mapping) or "theta" not in slot:
            return {}
        fraction, scaling = slot.get("fraction", 1.0), slot.get("scaling")
        written, more = self._written(scaling or {})
        parameters = {"rope_type": "default", **written, "rope_theta": slot["theta"]}
        old: dict[str, Any] = {self.theta_names[0]: slot["theta"]}
        if self.fraction is not None and not fraction == self.fraction == 1.0:
            parameters |= {"partial_rotary_factor": fraction}
            old |= dict.fromkeys(self.fraction_names, fraction)
        old |= {self.scaling_name: written} if written and self.scaling_name else {}
        new = f"rope_parameters.{self.section}" if self.section else "rope_parameters"
        return more | old | {new: parameters}

    def _written(self, scaling: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The section of a scaling, and what it says beside it."""
        kind, length = scaling.get("name", ""), scaling.get("original_length")
        if kind not in _KNOBS:
            return {}, {}
        values = {key: scaling[key] for key in _KNOBS[kind] if scaling.get(key) is not None}
        if kind in _STATES_NO_LENGTH:
            return {"rope_type": kind} | values, {} if length is None else {"max_position_embeddings": length}
        return {"rope_type": kind} | values | {_LENGTH: length}, {}


def _places(config: HFConfig, sections: Iterable[str]) -> _Places:
    """The paths at which each key of the sections stands."""
    found: _Places = {}
    for section in sections:
        for key in config.get_section(section):
            name = "rope_type" if key == "type" else key
            found[name] = (*found.get(name, ()), f"{section}.{key}")
    return found


def _number(config: HFConfig, paths: Sequence[str], over: Sequence[str], default: float) -> float:
    """As `_one`; what is no number is refused."""
    wrong = [path for path in (*paths, *over) if not isinstance(config.get(path, 0.0), int | float)]
    wrong += [path for path in (*paths, *over) if isinstance(config.get(path), bool)]
    for path in wrong:
        config.refuse(path, "a number")
    return default if wrong else float(_one(config, paths, over, default))


def _one(config: HFConfig, paths: Sequence[str], over: Sequence[str] = (), default: Any = None) -> Any:
    """What the fields at `paths`, which mean the same, agree on; `default` where none is set.

    Their code passes over the fields at `over`, so those may only say what it takes anyway.
    """
    found = {path: value for path in paths if (value := config.get(path)) is not None}
    first = next(iter(found), "")
    taken = found[first] if first else default
    for path, value in found.items():
        if path != first and value != taken:
            config.refuse(path, f"it means the same as {first}, which is {taken}", "the one that is right")
    for path in over:
        if config.get(path, taken) != taken:
            source = first or "its default"
            config.refuse(path, f"transformers passes over it here and takes {source}, {shown(taken)}", shown(taken))
    return taken

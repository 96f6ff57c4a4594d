"""Rotary positions in config.json, in the spelling of transformers 5 and in that of all versions before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
_STATES_NO_LENGTH = ("linear", "dynamic")  # dynamic stretches from max_position_embeddings on


@dataclass(frozen=True)
class Rope(Entry):
    """A rope slot at our path `ours` <-> `rope_parameters`; before: `rope_theta`, `rope_scaling`, a partial factor.

    section    the key below rope_parameters where layers differ, e.g. "sliding_attention"
    theta      what their code takes when the file states none; `fraction` too, None where it knows whole heads only
    theta_names      fields that stated theta before, `fraction_names` old names of `partial_rotary_factor`
    scaling_name     the field that stated the scaling before; "": none
    pairing    which coordinates turn together: "half" or "interleaved"; no weight is permuted for it
    """

    ours: str = "position"
    section: str = ""
    theta: float = 10000.0
    fraction: float | None = 1.0
    theta_names: tuple[str, ...] = ("rope_theta", "rotary_emb_base")
    fraction_names: tuple[str, ...] = ()
    scaling_name: str = "rope_scaling"
    pairing: str = "half"

    def read(self, config: HFConfig) -> dict[str, Any]:
        new = f"rope_parameters.{self.section}" if self.section else "rope_parameters"
        places: dict[str, tuple[str, ...]] = {}
        for place in (new, self.scaling_name) if self.scaling_name else (new,):
            for key in config.get_section(place):
                name = "rope_type" if key == "type" else key
                places[name] = (*places.get(name, ()), f"{place}.{key}")
        theta = (*places.pop("rope_theta", ()), *self.theta_names)
        part = (*places.pop("partial_rotary_factor", ()), "partial_rotary_factor", *self.fraction_names)
        slot = {
            "name": "rope",
            "theta": float(self._one(config, theta, self.theta)),
            "fraction": self._fraction(config, part),
            "scaling": self._scaling(config, places),
        }
        slot |= {"pairing": self.pairing} if self.pairing != "half" else {}
        return {self.ours: {key: value for key, value in slot.items() if value is not None}}

    def _fraction(self, config: HFConfig, paths: Sequence[str]) -> float:
        """The part of a head that is turned."""
        part = float(self._one(config, paths, 1.0 if self.fraction is None else self.fraction))
        if self.fraction is None and part != 1.0:
            stated = next(path for path in paths if config.get(path) is not None)
            config.refuse(stated, "models of this family turn whole heads, whatever stands here", "1.0")
        return part

    def _one(self, config: HFConfig, paths: Sequence[str], default: Any = None) -> Any:
        """What the fields at `paths`, which mean the same, agree on; `default` where none is set."""
        found = {path: value for path in paths if (value := config.get(path)) is not None}
        first = next(iter(found), "")
        for path, value in found.items():
            if value != found[first]:
                config.refuse(path, f"it means the same as {first}, which is {found[first]}", "the one that is right")
        return found[first] if first else default

    def _scaling(self, config: HFConfig, places: dict[str, tuple[str, ...]]) -> dict[str, Any] | None:
        where = places.pop("rope_type", ())
        stated = self._one(config, where, "default")
        kind = _SPELLINGS.get(stated, stated)
        if kind == "default":
            return None
        if kind not in _KNOBS:
            config.refuse(where[0], f"one of default, {', '.join(_KNOBS)}", "a model with one of these")
            return None
        known = _KNOBS[kind] if kind in _STATES_NO_LENGTH else (*_KNOBS[kind], _LENGTH)
        values = {key: self._one(config, paths) for key, paths in places.items() if key in known}
        if _LENGTH in known and values.get(_LENGTH) is None:
            values[_LENGTH] = config.get(_LENGTH)  # where Phi-3 has it
        values["original_length"] = values.pop(_LENGTH, None)
        return {"name": kind} | {key: value for key, value in values.items() if value is not None}

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
            old |= dict.fromkeys(("partial_rotary_factor", *self.fraction_names), fraction)
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

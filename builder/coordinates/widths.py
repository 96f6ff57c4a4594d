"""Copies of a model that differ in width alone: every knob that grows with d_model grows as much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd, lcm
from typing import Any

from builder.component import Config
from builder.components.init import alike
from builder.errors import ConfigError, Problem, shown
from builder.plain import refuse_others
from builder.spec import ModelSpec, RunSpec

KEY = "coordinates"


def read_widths(value: Any) -> tuple[int, ...] | None:
    """The widths to compare, in order; None: none were asked for. Raises ConfigError for anything else."""
    if value is None:
        return None
    whole = isinstance(value, list) and all(type(width) is int and width > 0 for width in value)
    if not whole or len(set(value)) < 2:
        rule = "a list of two widths or more, or null"
        raise ConfigError([Problem(KEY, shown(value), rule, f"{KEY}=[64,128,256]")])
    return tuple(sorted(set(value)))


def refuse(spec: RunSpec, widths: Sequence[int]) -> None:
    """Raises ConfigError where the model of `spec` has no copy at one of `widths`, or is no decoder of texts."""
    refuse_others(spec, KEY)
    at_widths(spec.model, widths)


def at_widths(model: ModelSpec, widths: Sequence[int]) -> list[ModelSpec]:
    """A copy of `model` at each of `widths`; raises ConfigError where a count wouldn't be whole."""
    step = 1
    for _, _, value in _grown(model):
        step = lcm(step, model.d_model // gcd(model.d_model, value))
    if misfits := [width for width in widths if width % step]:
        knobs = ", ".join(f"{path} {value}" for path, _, value in _grown(model))
        rule = f"widths at which what grows with d_model is whole: {knobs} at {model.d_model}, so multiples of {step}"
        fitting = sorted({max(1, round(width / step)) * step for width in widths})
        fitting = fitting if len(fitting) > 1 else [step, 2 * step, 4 * step]
        fix = f"{KEY}=[{','.join(map(str, fitting))}]"
        raise ConfigError([Problem(KEY, ", ".join(map(str, misfits)), rule, fix)])
    return [_at(model, width) for width in widths]


def _at(model: ModelSpec, width: int) -> ModelSpec:
    slots = {slot: _widened(config, model.d_model, width) for slot, config in model.slots.items()}
    return alike(model.model_copy(update={"d_model": width, **slots}), model)


def _widened(config: Config, d_model: int, width: int) -> Config:
    inner = {key: _widened(value, d_model, width) for key, value in config if isinstance(value, Config)}
    grown = {key: value * width // d_model for key, value in _knobs(config)}
    return config.model_copy(update=inner | grown)


def _grown(model: ModelSpec) -> Iterator[tuple[str, str, int]]:
    for slot, config in model.slots.items():
        for path, part in _nested(slot, config):
            yield from ((f"{path}.{key}", key, value) for key, value in _knobs(part))


def _nested(path: str, config: Config) -> Iterator[tuple[str, Config]]:
    """A config and those inside it, each with its path."""
    yield path, config
    for key, value in config:
        if isinstance(value, Config):
            yield from _nested(f"{path}.{key}", value)


def _knobs(config: Config) -> Iterator[tuple[str, int]]:
    """The knobs of a config that grow, as far as they are set."""
    for key in config.grows():
        if (value := getattr(config, key)) is not None:
            yield key, value

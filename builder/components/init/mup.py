"""Maximal update parametrisation: what was tuned on a narrow model holds for one that is m times as wide."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat, PositiveInt

from builder.component import Config as BaseConfig
from builder.finding import Finding, Status
from builder.registry import register

from .depth_scaled import DepthScaled

if TYPE_CHECKING:
    from builder.spec import ModelSpec

_STD = {"matrix": -0.5, "residual": -0.5, "readout": -1.0}
_RATE = {"matrix": -1.0, "residual": -1.0, "readout": -1.0}


@register("init", "mup")
class MuP(DepthScaled):
    """mu-P for Adam (Yang et al. 2022, "Tensor Programs V"), from a model of width d_0 to one of width d = m d_0:

                                        std             learning rate   beside
        matrix, residual                1 / sqrt(m)     1 / m
        readout: routers, untied head   1 / m           1 / m           table 3
        table, tied to the head         1               1               logits / m: model.head.scale, table 8
        scales and biases               as they are     1
        scores, where heads are wider                                   sqrt(d_h0) / d_h: the attention's scale

    beside `depth_scaled`, which it equals at m = 1. Every other width is taken to grow as d does: d_ff and heads.
    """

    class Config(BaseConfig):
        """The base is the model whose learning rate, weight decay and std are given.

        base_d_model    d_0, its width
        base_d_head     d_h0, the width of its heads; None: that of this model, which has more of them
        std             of its matrices and tables, before the scaling by depth
        """

        name: str = "mup"
        base_d_model: PositiveInt
        base_d_head: PositiveInt | None = None
        std: PositiveFloat = 0.02

        def times(self, d_model: int) -> float:
            """m, how many times as wide as its base a model is."""
            return d_model / self.base_d_model

    def std(self, role: str) -> float:
        return super().std(role) * self.config.times(self.site.d_model) ** _STD.get(role, 0.0)

    def rate(self, role: str, shape: Sequence[int]) -> float:
        return self.config.times(self.site.d_model) ** _RATE.get(role, 0.0)

    @classmethod
    def multipliers(cls, config: Config, model: ModelSpec) -> Mapping[str, float]:
        times = config.times(model.d_model)
        wanted = {"head.scale": 1 / times} if model.tie_embeddings and times != 1 else {}
        for slot, width, base in _heads(config, model):
            if width != base:
                wanted[f"{slot}.scale"] = math.sqrt(base) / width
        return wanted

    @classmethod
    def judge(cls, config: Config, model: ModelSpec) -> Iterable[Finding]:
        times = config.times(model.d_model)
        found = f"base d {config.base_d_model}, d {model.d_model}: m = {times:.4g}"
        rule = "as depth_scaled" if times == 1 else _scaled(model.tie_embeddings)
        yield Finding(Status.PASS, 4, "model.init.base_d_model", found, rule)
        for key, factor in cls.multipliers(config, model).items():
            yield _multiplier(key, factor, model)
        yield from _embedding(config, model)
        for slot, width, base in _heads(config, model):
            yield from _head_width(slot, width, base, config, model)


def _scaled(tied: bool) -> str:
    head = "logits / m" if tied else "the head's own std / m, rate / m"
    return f"std / sqrt(m), rate / m and decay * m for matrices; {head}; d_ff and heads are taken to be m times as many"


def _multiplier(key: str, factor: float, model: ModelSpec) -> Finding:
    value = attrgetter(key)(model)
    path, write = f"model.{key}", f"model.{key}={factor:.6g}"
    if value is None:
        rule = "mu-P scales this with width, and without it what was tuned on the base doesn't hold here"
        return Finding(Status.FAIL, 4, path, "null", rule, write)
    if not math.isclose(value, factor, rel_tol=1e-4):
        rule = f"mu-P makes it {factor:.6g} here: right if the base multiplies by {value / factor:.4g} beside"
        return Finding(Status.WARN, 4, path, f"{value:.6g}", rule, write)
    return Finding(Status.PASS, 4, path, f"{value:.6g}", "as mu-P has it at this width")


def _embedding(config: MuP.Config, model: ModelSpec) -> Iterator[Finding]:
    here, base = (model.embedding.factor(width) for width in (model.d_model, config.base_d_model))
    if here != base:
        rule = f"the embedded tokens grow with width, {here:.4g} here and {base:.4g} in the base: mu-P keeps them"
        yield Finding(
            Status.FAIL, 4, "model.embedding.scale", "sqrt_d_model", rule, f"model.embedding.scale={base:.6g}"
        )


def _head_width(slot: str, width: int, base: int, config: MuP.Config, model: ModelSpec) -> Iterator[Finding]:
    """Scores need their scale where heads are wider than in the base; a width that follows d_model leaves that open."""
    path, times = f"model.{slot}.d_head", config.times(model.d_model)
    mixer = attrgetter(slot)(model)
    follows = mixer.component.score_width(mixer, replace(model.site(0), d_model=config.base_d_model)) != width
    if times == 1 and width != base:
        rule = f"this is the base model itself, and init.base_d_head says that its heads are {base} wide"
        yield Finding(Status.FAIL, 4, path, f"{width}", rule, "model.init.base_d_head=null")
    elif config.base_d_head is None and times != 1 and follows:
        rule = "it follows from d_model and n_heads: has the base as wide heads, or as many?"
        fix = f"{path}={width}, or the width of the base's heads in model.init.base_d_head"
        yield Finding(Status.WARN, 4, path, f"{width}", rule, fix)


def _heads(config: MuP.Config, model: ModelSpec) -> Iterator[tuple[str, int, int]]:
    """(slot, how many products its scores sum, and how many in the base) of every mixer that has scores, those inside
    others included, such as ssm.attention."""
    for slot, mixer in (found for chosen in model.mixers.items() for found in _inside(*chosen)):
        width = mixer.component.score_width(mixer, model.site(0))
        if width is not None:
            yield slot, width, config.base_d_head or width


def _inside(slot: str, mixer: Any) -> Iterator[tuple[str, Any]]:
    """A mixer and those that it is made of, each with its path."""
    yield slot, mixer
    for key, value in mixer:
        if getattr(getattr(value, "component", None), "part", "") == "mixer":
            yield from _inside(f"{slot}.{key}", value)

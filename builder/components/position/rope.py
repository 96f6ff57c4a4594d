"""Rotary positions: queries and keys are turned, so that their product depends on their distance."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Room, Site
from builder.components.position import Position, reach
from builder.components.scaling import Scaling, unscaled
from builder.finding import Finding, Status
from builder.model.positions import Positions
from builder.registry import register


@register("position", "rope")
class RoPE(Position):
    """q_p = R(p) q, k_s = R(s) k, so that q_p . k_s = q . R(s - p) k (chapter 3.6; Su et al. 2021).

    R(p) turns each pair of the first r = fraction * E coordinates of a head by p theta^(-2i / r), i < r/2:

        half         pair i is (i, i + r/2)        GPT-NeoX, Llama in transformers
        interleaved  pair i is (2i, 2i + 1)        Su et al., GPT-J, Llama as published

    Both keep the order of the coordinates. Angles are computed in float32 whatever the model's dtype: in bfloat16 most
    positions past 256 coincide; their cosines and sines are then rounded to the dtype of what they turn.
    """

    class Config(BaseConfig):
        """The knobs of rotary positions.

        theta     sets the longest wave
        fraction  of the head width is turned, the rest carries no position
        pairing   which two coordinates turn together
        scaling   of the frequencies, to reach past the train length
        """

        name: str = "rope"
        theta: Annotated[PositiveFloat, Field(gt=1)] = 10000.0
        fraction: Annotated[float, Field(gt=0, le=1)] = 1.0
        pairing: Literal["half", "interleaved"] = "half"
        scaling: Annotated[BaseConfig, Room("scaling")] | None = None

        def width(self, d_head: int) -> int:
            """How many coordinates of a head are turned."""
            return int(d_head * self.fraction)

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"scaling": self.scaling and self.scaling.shrink(site)})

    def __init__(self, config: RoPE.Config, site: Site):
        super().__init__(config, site)
        self.config = config
        scaling = config.scaling
        self.scaling: Scaling | None = None if scaling is None else scaling.component(scaling, site)
        self._key = f"{config} {site.train_length} {site.deploy_length}"  # all that angles depend on beside the pass

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        if positions.ids.shape[1] > 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return self._rotate(x, positions)
        # a single token, as in decode: one product with the matrix R^T, which is what the turn makes of the identity
        matrix = positions.once((self._key, "matrix", x.shape[-1], x.dtype), lambda: self._matrix(x, positions))
        return x @ matrix  # (B, 1, H, E)

    def _matrix(self, x: Tensor, positions: Positions) -> Tensor:
        """(E, E), or (B, 1, E, E) where rows stand apart."""
        identity = torch.eye(x.shape[-1], device=x.device, dtype=x.dtype)[None, None]  # (1, 1, E, E)
        matrix = self._rotate(identity, positions)  # (B | 1, 1, E, E)
        return matrix[0, 0] if len(matrix) == 1 else matrix

    def _rotate(self, x: Tensor, positions: Positions) -> Tensor:
        width = self.config.width(x.shape[-1])
        cos, sin = positions.once((self._key, width, x.dtype), lambda: self._turns(width, positions, x.dtype))
        if width == x.shape[-1]:
            return self._turned(x, cos, sin)
        turned, rest = x.split((width, x.shape[-1] - width), dim=-1)
        return torch.cat((self._turned(turned, cos, sin), rest), dim=-1)  # (B, T, H, E)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x with its pairs turned: (a, b) -> (a cos - b sin, b cos + a sin)."""
        halves = self.config.pairing == "half"
        if torch.compiler.is_compiling():
            return _fusible(x, cos, sin, halves)
        return _Turn.apply(x, cos, sin, halves) if torch.is_grad_enabled() else _turn(x, cos, sin, halves)  # type: ignore[no-any-return]

    def _turns(self, width: int, positions: Positions, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosine of each coordinate and sine of each pair, (B | 1, T, 1, r | r/2), in the dtype of what is turned."""
        angles = positions.ids[..., None, None].float() * self._frequencies(width, positions)  # (B | 1, T, 1, r/2)
        scale = 1.0 if self.scaling is None else self.scaling.factor
        cos, sin = angles.cos() * scale, angles.sin() * scale
        both = torch.cat((cos, cos), -1) if self.config.pairing == "half" else cos.repeat_interleave(2, -1)
        return both.to(dtype), sin.to(dtype)

    def _frequencies(self, width: int, positions: Positions) -> Tensor:
        device = positions.ids.device
        if self.scaling is None:
            return unscaled(self.config.theta, width, device)
        reach = positions.reach
        reach = reach[:, None, None, None] if isinstance(reach, Tensor) else reach  # (B, 1, 1, 1)
        return self.scaling.frequencies(self.config.theta, width, reach, device)

    @classmethod
    def misfit(cls, config: RoPE.Config, d_head: int) -> str | None:
        width, scaling = config.width(d_head), config.scaling
        if width < 2 or width % 2:
            return f"rope turns pairs: its width, {config.fraction:g} * {d_head} = {width}, must be even and at least 2"
        return None if scaling is None else scaling.component.misfit(scaling, width)

    @classmethod
    def told(cls, config: RoPE.Config, site: Site) -> str:
        scaling: Any = config.scaling
        if scaling is None:
            return config.name
        return f"{config.name} + {scaling.name} {scaling.stretched(site) / scaling.original(site):g}"

    @classmethod
    def check(cls, config: RoPE.Config, site: Site) -> Iterable[Finding]:
        if config.scaling is not None:
            yield _stretched(config.scaling, site)
            return
        found = f"theta {config.theta:g}, {reach(site)}"
        if site.deploy_length > site.train_length:
            rule = "angles past the train length were never seen; a tensor that runs is no model that reads that far"
            fix = f"model.deploy_length={site.train_length}, train longer, or a scaling"
            yield Finding(Status.WARN, 3, "theta", found, rule, fix)
        else:
            yield Finding(Status.PASS, 3, "theta", found, "every distance that is deployed was trained")


def _turn(x: Tensor, cos: Tensor, sin: Tensor, halves: bool) -> Tensor:
    """In few passes over memory."""
    out = x * cos
    (a, b), (turned_a, turned_b) = _pairs(x, halves), _pairs(out, halves)
    turned_a.addcmul_(b, sin, value=-1)
    turned_b.addcmul_(a, sin)
    return out


def _pairs(x: Tensor, halves: bool) -> tuple[Tensor, Tensor]:
    """The first and the second of each pair, (..., r/2) each, where they lie."""
    half = x.shape[-1] // 2
    return (x[..., :half], x[..., half:]) if halves else (x[..., ::2], x[..., 1::2])


def _fusible(x: Tensor, cos: Tensor, sin: Tensor, halves: bool) -> Tensor:
    """As one expression, of which a compiler makes faster code than of what is written in place."""
    if halves:
        partner, signed = x.roll(x.shape[-1] // 2, -1), torch.cat((-sin, sin), -1)
    else:
        partner = x.unflatten(-1, (-1, 2)).roll(1, -1).flatten(-2)  # (B, T, H, r)
        signed = torch.stack((-sin, sin), -1).flatten(-2)  # (B | 1, T, 1, r)
    return torch.addcmul(x * cos, partner, signed)


class _Turn(torch.autograd.Function):
    """Backward the same turn, the other way round; autograd would go over what is written in place piece by piece."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, halves: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.halves = halves
        return _turn(x, cos, sin, halves)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (dy,), (cos, sin) = grads, ctx.saved_tensors
        return _Turn.apply(dy, cos, -sin, ctx.halves), None, None, None  # type: ignore[return-value]


def _stretched(scaling: BaseConfig, site: Site) -> Finding:
    """The verdict on scaled frequencies."""
    original: int = scaling.original(site)  # type: ignore[attr-defined]
    stretched: int = scaling.stretched(site)  # type: ignore[attr-defined]
    waits: bool = scaling.component.waits
    found = f"{scaling.name} from {original} to {stretched}, {reach(site)}"
    if site.deploy_length <= original:
        rule = "nothing is deployed past the original length, so there is nothing to stretch for"
        return Finding(Status.WARN, 3, "scaling", found, rule, "scaling=null, or a longer model.deploy_length")
    if site.deploy_length <= site.train_length:
        return Finding(Status.PASS, 3, "scaling", found, "every distance that is deployed was trained, so scaled")
    if site.deploy_length <= stretched and original > site.train_length:
        rule = f"it trains at {site.train_length} only: what lies past that is known from an earlier training, or not"
        return Finding(Status.WARN, 3, "scaling", found, rule, f"model.train_length={original}")
    if site.deploy_length <= stretched and not (waits or scaling.original_length):  # type: ignore[attr-defined]
        rule = "training is stretched too, so that what lies past the train length stays as unseen as it was"
        waiting = f"scaling={{name: dynamic, factor: {scaling.factor:g}}}"  # type: ignore[attr-defined]
        fix = f"{waiting}, or scaling.original_length={original}, if it was trained at that length before, without it"
        return Finding(Status.WARN, 3, "scaling", found, rule, fix)
    if site.deploy_length <= stretched:
        rule = "angles stay among those of the original length; whether the model reads that far, evaluation must tell"
        return Finding(Status.PASS, 3, "scaling", found, rule)
    rule = "the scaled angles were made for less: those past it were never seen"
    return Finding(Status.WARN, 3, "scaling", found, rule, f"model.deploy_length={stretched}, or a larger factor")

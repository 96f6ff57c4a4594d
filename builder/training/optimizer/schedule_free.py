"""AdamW without a schedule: the average of its steps is deployed, and no rate falls."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Annotated, Any

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.errors import ConfigError, Problem
from builder.registry import register
from builder.training.optimizer import Beta, Deployed, Optimizer, decay_groups

_each: Any = torch  # torch._foreach_*: one kernel for many tensors, where the device has one
_LIBRARY = "schedulefree"


@register("optimizer", "schedule_free")
class ScheduleFree(Optimizer):
    """Schedule-free AdamW (Defazio et al. 2024, "The road less scheduled", algorithm 1), of the library schedulefree.

    Gradients are taken at y, which the model holds in training; z moves by them; x, the average of z, is deployed:

        y = (1 - b1) z + b1 x
        z <- z - lr (g / (sqrt(v) + eps) + weight_decay y)      v corrected for bias
        x <- (1 - c) x + c z                                    c = lr^2 / the sum of lr^2 over all steps by now

    The optimizer keeps y and z, and x is computed from them. `lr` rises over the warm-up of schedule=constant.
    """

    class Config(BaseConfig):
        """`lr` is the peak; `betas` are b1, between z and x, and that of the average of squares.

        The paper's lr are 1 to 10 times those of AdamW with a schedule, and its b1 up to 0.98 in long runs.
        """

        name: str = "schedule_free"
        lr: PositiveFloat = 2.5e-3
        betas: Annotated[tuple[Annotated[float, Field(gt=0, lt=1)], Beta], Field(strict=False)] = (0.9, 0.999)
        eps: PositiveFloat = 1e-8
        weight_decay: NonNegativeFloat = 0.1

    @classmethod
    def refuses(cls, spec: Any, model: nn.Module) -> Iterable[Problem]:
        if importlib.util.find_spec(_LIBRARY) is None:
            yield _missing()
        if spec.schedule.component(spec.schedule, spec.steps).falls:
            rule = "a rate that rises to its peak and stays there: the average of the steps takes the place of a fall"
            yield Problem("schedule", spec.schedule.name, rule, "schedule=constant, with its warmup_steps")
        if spec.ema is not None:
            rule = "the optimizer deploys an average of its own, and that of the point where it takes gradients is none"
            yield Problem("ema", f"{{decay: {spec.ema.decay}}}", rule, "ema=null")
        yield from super().refuses(spec, model)

    @staticmethod
    def build(config: ScheduleFree.Config, model: nn.Module) -> torch.optim.Optimizer:
        try:
            from schedulefree import AdamWScheduleFree
        except ImportError:
            raise ConfigError([_missing()]) from None
        groups = decay_groups(model, config.weight_decay, lr=config.lr)
        optimizer = AdamWScheduleFree(groups, lr=config.lr, betas=config.betas, eps=config.eps)
        optimizer.train()  # for good: its eval() and back again rounds the weights
        return optimizer

    @staticmethod
    def deployed(optimizer: torch.optim.Optimizer) -> Deployed:
        return lambda: _averaged(optimizer)


@torch.no_grad()
def _averaged(optimizer: torch.optim.Optimizer) -> dict[Tensor, Tensor]:
    """x = y + (1 - 1 / b1) (z - y) for every y that has moved; the others are where they began, as x is."""
    found: dict[Tensor, Tensor] = {}
    for group in optimizer.param_groups:
        moved = [y for y in group["params"] if "z" in optimizer.state[y]]
        if moved:
            averages = [y.detach().clone() for y in moved]
            _each._foreach_lerp_(averages, [optimizer.state[y]["z"] for y in moved], 1 - 1 / group["betas"][0])
            found |= zip(moved, averages, strict=True)
    return found


def _missing() -> Problem:
    return Problem(
        "optimizer.name", "schedule_free", f"the library {_LIBRARY} must be installed", "pip install schedulefree"
    )

"""Lion: every number moves by the learning rate, in the direction of the sign of its momentum."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.registry import register
from builder.training.optimizer import Betas, Optimizer, Stepper, decay_groups

_each: Any = torch  # torch._foreach_*: one kernel for many tensors, where the device has one


@register("optimizer", "lion")
class Lion(Optimizer):
    """Evolved sign momentum (Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2).

    w <- w - lr (sign(b1 m + (1 - b1) g) + weight_decay w), and then m <- b2 m + (1 - b2) g: one average for each
    number, where Adam has two.
    """

    class Config(BaseConfig):
        """`lr` is the peak that the schedule scales; `betas` are b1, of the step, and b2, of what is remembered.

        A step is longer than Adam's: the paper takes an lr 3 to 10 times lower and a weight_decay as much higher,
        and betas of (0.95, 0.98) where training is unstable.
        """

        name: str = "lion"
        lr: PositiveFloat = 1e-4
        betas: Betas = (0.9, 0.99)
        weight_decay: NonNegativeFloat = 1.0

    @staticmethod
    def build(config: Lion.Config, model: nn.Module) -> torch.optim.Optimizer:
        groups = decay_groups(model, config.weight_decay, lr=config.lr)
        return _Lion(groups, {"lr": config.lr, "betas": config.betas})


class _Lion(Stepper):
    """All parameters of a group at once."""

    def move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        lr, (of_step, of_memory) = group["lr"], group["betas"]
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        momenta = self.kept(parameters, "momentum")
        steps = _each._foreach_lerp(momenta, gradients, 1 - of_step)
        _each._foreach_sign_(steps)
        _each._foreach_mul_(parameters, 1 - lr * group["weight_decay"])
        _each._foreach_add_(parameters, steps, alpha=-lr)
        _each._foreach_lerp_(momenta, gradients, 1 - of_memory)

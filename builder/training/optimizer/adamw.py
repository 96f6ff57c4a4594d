"""Adam with decoupled weight decay."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import nn

from builder.component import Config as BaseConfig
from builder.registry import register
from builder.training.optimizer import Optimizer, decay_groups

Beta = Annotated[float, Field(ge=0, lt=1)]


@register("optimizer", "adamw")
class AdamW(Optimizer):
    """w <- w - lr (m / (sqrt(v) + eps) + weight_decay w), m and v corrected for bias (Loshchilov & Hutter 2019)."""

    class Config(BaseConfig):
        """`lr` is the peak that the schedule scales; `betas` average the gradient and its square."""

        name: str = "adamw"
        lr: PositiveFloat = 1e-3
        betas: Annotated[tuple[Beta, Beta], Field(strict=False)] = (0.9, 0.95)
        eps: PositiveFloat = 1e-8
        weight_decay: NonNegativeFloat = 0.1

    @staticmethod
    def build(config: AdamW.Config, model: nn.Module) -> torch.optim.Optimizer:
        groups = decay_groups(model, config.weight_decay)
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)

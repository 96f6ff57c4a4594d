"""Adam with decoupled weight decay."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import nn

from builder.component import Config as BaseConfig
from builder.errors import Problem, shown
from builder.registry import register
from builder.training.optimizer import Betas, Optimizer, Part, decay_groups, parts


@register("optimizer", "adamw")
class AdamW(Optimizer):
    """w <- w - lr (m / (sqrt(v) + eps) + weight_decay w), m and v corrected for bias (Loshchilov & Hutter 2019)."""

    class Config(BaseConfig):
        """`lr` is the peak that the schedule scales; `betas` average the gradient and its square.

        embedding_lr    that of the tables of vectors: tokens, with the head where it is tied, and learned positions;
                        None: lr
        head_lr         that of a head with a weight of its own, its bias included; None: lr

        Where the init scales learning rates (mup), these are those of its base model.
        """

        name: str = "adamw"
        lr: PositiveFloat = 1e-3
        embedding_lr: PositiveFloat | None = None
        head_lr: PositiveFloat | None = None
        betas: Betas = (0.9, 0.95)
        eps: PositiveFloat = 1e-8
        weight_decay: NonNegativeFloat = 0.1

    @classmethod
    def unfelt(cls, config: AdamW.Config, model: nn.Module) -> Iterable[Problem]:
        weights = {part for _, part, decays in parts(model) if decays}
        for part, rate in _rates(config).items():
            if part not in weights:
                tied = part == "head" and getattr(getattr(model, "spec", None), "tie_embeddings", True)
                yield Problem(f"optimizer.{part}_lr", shown(rate), *(_TIED if tied else _UNFELT[part]))

    @staticmethod
    def build(config: AdamW.Config, model: nn.Module) -> torch.optim.Optimizer:
        knobs: dict[Part, dict[str, float]] = {part: {"lr": rate} for part, rate in _rates(config).items()}
        groups = decay_groups(model, config.weight_decay, knobs, lr=config.lr)
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


_TIED = (
    "the head trains no weight of its own: tied, it is the table, and has the rate of embedding_lr",
    "optimizer.head_lr=null, or model.tie_embeddings=false",
)
_UNFELT: dict[Part, tuple[str, str]] = {
    "head": ("the head trains no weight of its own", "optimizer.head_lr=null"),
    "embedding": ("the model trains no table of vectors", "optimizer.embedding_lr=null"),
}


def _rates(config: AdamW.Config) -> dict[Part, float]:
    """The rates that differ from the rest's, by the part that has them."""
    rates: dict[Part, float | None] = {"embedding": config.embedding_lr, "head": config.head_lr}
    return {part: rate for part, rate in rates.items() if rate is not None}

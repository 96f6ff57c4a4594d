"""What turns gradients into steps: the contract of an optimizer, and which parameters decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from builder.component import Component
from builder.components.init import roles

DECAYED = ("matrix", "residual", "embedding")
"""The roles whose parameters decay; what a role is says builder.components.init."""


class Optimizer(Component):
    """Never instantiated: `build` returns torch's optimizer for a model."""

    @staticmethod
    def build(config: Any, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the parameters of `model`."""
        raise NotImplementedError


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices and tables decay, norm scales, biases and a module's own don't; a tied weight is in once."""
    trained = [(parameter, role) for _, _, parameter, role in roles(model) if parameter.requires_grad]
    decayed: list[Tensor] = [parameter for parameter, role in trained if _decays(parameter, role)]
    others: list[Tensor] = [parameter for parameter, role in trained if not _decays(parameter, role)]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _decays(parameter: Tensor, role: str | None) -> bool:
    return role in DECAYED or (role is None and parameter.ndim >= 2)  # of a module that states no roles: its matrices

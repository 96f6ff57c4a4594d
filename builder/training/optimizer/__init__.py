"""What turns gradients into steps: the contract of an optimizer, and which parameters decay."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from builder.component import Component


class Optimizer(Component):
    """Never instantiated: `build` returns torch's optimizer for a model."""

    @staticmethod
    def build(config: Any, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer over the parameters of `model`."""
        raise NotImplementedError


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups: matrices and tables decay, vectors (norm scales, biases) don't; a tied weight is in once."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices: list[Tensor] = [parameter for parameter in trained if parameter.ndim >= 2]
    vectors: list[Tensor] = [parameter for parameter in trained if parameter.ndim < 2]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]

"""What is deployed in place of the weights in training: those themselves, their average, or what an optimizer says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from builder.sections import EmaSpec
from builder.training.optimizer import Deployed

from .divided import divided, whole


class Averages:
    """Deploys the weights in training, as they are; heirs deploy others. Buffers stay what their modules make them.

    Not torch's AveragedModel, whose average this has: that one copies the whole module, which sharded ones refuse,
    averages in the dtype of its weights, and waits for the device twice in every step.
    """

    def update(self, model: nn.Module) -> None:
        """To be called after each optimizer step."""

    def weights(self, model: nn.Module) -> dict[Tensor, Tensor]:
        """What is deployed, by the parameter in whose place; parameters that aren't in it are deployed as they are."""
        return {}

    @torch.no_grad()
    def deploy(self, model: nn.Module) -> None:
        """Writes what is deployed into the model, in place and for good."""
        _reshard(model)
        for parameter, weight in self.weights(model).items():
            parameter.copy_(weight)

    @contextmanager
    def deployed(self, model: nn.Module) -> Iterator[None]:
        """The model as it is deployed; then it has its weights again, bit for bit. They are kept beside meanwhile."""
        trained = {parameter: parameter.detach().clone() for parameter in self.weights(model)}
        try:
            self.deploy(model)
            yield
        finally:
            _reshard(model)
            with torch.no_grad():
                for parameter, weight in trained.items():
                    parameter.copy_(weight)

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """What is deployed by the model's own names, a tied weight under each of its own; {} if nothing differs.

        Whole where the model is sharded: every rank must ask. `state_dict | state` are the weights to deploy.
        """
        _reshard(model)
        weights = self.weights(model)
        named = model.named_parameters(remove_duplicate=False)
        return {name: whole(weights[parameter].detach(), to="cpu") for name, parameter in named if parameter in weights}

    def restore(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        """Takes back what `state` gave, onto the devices and shards where the model lies by now."""


class Ema(Averages):
    """average <- decay average + (1 - decay) w after each step, from the weights after the first step on.

    In float32 at least: in bfloat16 a move as small as (1 - decay) would be lost.
    """

    def __init__(self, spec: EmaSpec):
        self._mix = get_ema_multi_avg_fn(spec.decay)
        self._average: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
        now: dict[Tensor, Tensor] = {parameter: _wide(parameter) for parameter in trained}
        if self._average:
            self._mix(list(self._average.values()), [now[parameter] for parameter in self._average], 0)
        else:
            self._average = {parameter: weight.clone() for parameter, weight in now.items()}

    def weights(self, model: nn.Module) -> dict[Tensor, Tensor]:
        return self._average

    @torch.no_grad()
    def restore(self, model: nn.Module, state: Mapping[str, Tensor]) -> None:
        names = {parameter: name for name, parameter in model.named_parameters() if name in state}
        self._average = {parameter: divided(state[name].clone(), parameter) for parameter, name in names.items()}


class OfOptimizer(Averages):
    """The optimizer keeps the average itself, and its own state all that it is made of."""

    def __init__(self, deployed: Deployed):
        self._deployed = deployed

    def weights(self, model: nn.Module) -> dict[Tensor, Tensor]:
        return self._deployed()


def averages(ema: EmaSpec | None, deployed: Deployed | None) -> Averages:
    """What a run deploys: by `ema`, by what its optimizer's component says of it, or else its weights."""
    if deployed is not None:
        return OfOptimizer(deployed)
    return Averages() if ema is None else Ema(ema)


def _reshard(model: nn.Module) -> None:
    """Puts shards back where FSDP2 left what it had gathered for a pass: that is stale once a shard is written to."""
    from torch.distributed.fsdp import FSDPModule  # imports much that a run on one device never needs

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _wide(weight: Tensor) -> Tensor:
    """In float32 at least, and itself where it is."""
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32))

"""What modules count in training, summed over all that one optimizer step reads, on every rank, and told to them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from builder.model.context import Aux


class Tallies:
    """Sums `Aux.tallies`: of the passes since the last step, and in `window` of the steps since the last restart.

    Only passes that are added count: a pass that is recomputed for its gradients, or made to validate, is not.
    """

    def __init__(self) -> None:
        self._passes: dict[nn.Module, Tensor] = {}
        self.window: dict[nn.Module, Tensor] = {}

    def add(self, aux: Aux) -> None:
        """Counts one pass: a micro-batch of the step under way."""
        for module, tally in aux.tallies.items():
            self._passes[module] = self._passes[module] + tally if module in self._passes else tally

    def settle(self, reduce: Callable[[Tensor], Tensor]) -> None:
        """Ends a step: what was counted in it is summed over ranks by `reduce`, and told to each module."""
        if not self._passes:
            return
        tallies = list(self._passes.values())
        summed = reduce(torch.cat(tallies)).split([len(tally) for tally in tallies])
        for module, tally in zip(self._passes, summed, strict=True):
            module.settle(tally)  # type: ignore[operator]
            self.window[module] = self.window[module] + tally if module in self.window else tally
        self._passes = {}

    def drop(self) -> None:
        """Ends a step that was not taken: what was counted in it is forgotten."""
        self._passes = {}

    def restart(self) -> None:
        """Begins a new window."""
        self.window = {}

    def state(self, model: nn.Module) -> dict[str, Tensor]:
        """The window, by the names of the modules in `model`."""
        return {name: self.window[part].cpu() for name, part in model.named_modules() if part in self.window}

    def restore(self, model: nn.Module, state: dict[str, Tensor], device: torch.device) -> None:
        """Takes back what `state` gave."""
        self.window = {model.get_submodule(name): tally.to(device) for name, tally in state.items()}

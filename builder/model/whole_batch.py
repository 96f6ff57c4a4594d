"""The whole batch of an optimizer step, of which one pass reads a part: what losses of layers are means over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor, nn


def _alone(value: Tensor) -> Tensor:
    return value


@dataclass(frozen=True)
class WholeBatch:
    """A step weighs the losses that layers report in a pass by `weight`: means over real tokens add up to that over the
    whole batch. What is another mean, or no mean, is told here what it needs.

    weight              () the share of the real tokens of the whole batch that this pass reads
    sequences_of_pass   () that share of the sequences of the whole batch: what a sum over those of this pass is divided
                        by, to become in the end the mean over all
    choices             (X,) how often each expert was chosen in the whole batch, by module; a module that isn't in it
                        is counted in this pass, which then is all that its rank reads, and `over_ranks` adds the others
    own                 those of the one module of a layer that is in `choices`, when it is that layer which is told
    """

    weight: Tensor
    sequences_of_pass: Tensor
    choices: Mapping[nn.Module, Tensor] = field(default_factory=dict)
    over_ranks: Callable[[Tensor], Tensor] = _alone
    own: Tensor | None = None

    def of(self, layer: nn.Module) -> WholeBatch:
        """What a layer is told: nothing by module, so that what is compiled for one layer serves those like it."""
        own = [self.choices[module] for module in layer.modules() if module in self.choices] if self.choices else []
        return replace(self, choices={}, own=own[0] if own else None)

    def chosen(self, module: nn.Module, here: Tensor) -> Tensor:
        """(X,) the choices of the whole batch among the experts of `module`, of which this pass counted `here`."""
        if self.own is not None:
            return self.own
        return self.choices[module] if self.choices and module in self.choices else self.over_ranks(here)

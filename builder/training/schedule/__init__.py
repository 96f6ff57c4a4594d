"""How the learning rate moves over the optimizer steps: the contract of a schedule."""

from __future__ import annotations

from typing import Any

from builder.component import Component


class Schedule(Component):
    """Built as `Schedule(config, steps)`, steps being the whole run."""

    def __init__(self, config: Any, steps: int):
        self.config, self.steps = config, steps

    def factor(self, step: int) -> float:
        """What the peak learning rate is multiplied by at optimizer step `step`, the first being 0."""
        raise NotImplementedError

"""Where tokens went: the load of every layer with experts in each window between two log lines, logged and drawn."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor

from builder.experiments.heat_map import draw
from builder.experiments.load import Load, metrics
from builder.training.module import Training
from builder.whole import whole

PICTURE = "moe_load.png"
"""The name of the heat map in the run folder."""


class Routing(L.Callback):
    """Logs moe/<layer>/<figure> at each log line; draws the last window at each validation and at the end.

    Until the first log line, and in a run that is too short for one, the window is what was counted so far. A model
    without experts counts nothing, and nothing happens.
    """

    def __init__(self) -> None:
        self._window: dict[int, Tensor] = {}  # by layer (X + 2,), of the last log line,
        self._step = 0  # which was after this step
        self._drawn: int | None = None

    def on_train_batch_end(self, trainer: L.Trainer, module: Training, *_: Any) -> None:
        every: int = trainer.log_every_n_steps  # pyright: ignore[reportAttributeAccessIssue]
        if trainer.global_step % every == 0 and module.tallies.window:
            self._window, self._step = _by_layer(module), trainer.global_step
            module.tallies.restart()
            told = metrics(_loads(self._window))
            for logger in trainer.loggers:  # not by log_dict, in which Lightning takes a millisecond for each number
                logger.log_metrics(told, step=self._step - 1)  # as Lightning counts, from 0

    def on_validation_end(self, trainer: L.Trainer, module: Training) -> None:
        self._draw(trainer, module)

    def on_train_end(self, trainer: L.Trainer, module: Training) -> None:
        self._draw(trainer, module)

    def state_dict(self) -> dict[str, Any]:
        return {"window": self._window, "step": self._step} if self._window else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._window, self._step = state_dict["window"], state_dict["step"]

    def last(self, module: Training) -> tuple[dict[int, Load], int]:
        """The load of the last window by layer, empty without experts, and the step that the window ended with."""
        if self._window:
            return _loads(self._window), self._step
        return _loads(_by_layer(module)), module.global_step

    def _draw(self, trainer: L.Trainer, module: Training) -> None:
        loads, step = self.last(module)
        if not loads or not trainer.is_global_zero or self._drawn == step:
            return
        picture = Path(trainer.default_root_dir, PICTURE)
        with whole(picture, "wb") as file:
            draw(loads, f"Routing load after step {step}", file)
        for logger in trainer.loggers:
            log_image = getattr(logger, "log_image", None)  # as Lightning calls it where pictures can be logged
            if log_image is not None:
                log_image("moe/load", [str(picture)], step=trainer.global_step - 1)
        self._drawn = step


def _by_layer(module: Training) -> dict[int, Tensor]:
    """The window on the CPU, by the number of the layer that counted, an encoder's behind those of its decoder.

    One copy to wait for, however many layers.
    """
    window = module.tallies.window
    if not window:
        return {}
    inside = {part: index for index, (_, block) in enumerate(module.model.blocks()) for part in block.modules()}
    together = torch.cat(list(window.values())).cpu().split([len(tally) for tally in window.values()])
    return {inside[part]: tally.clone() for part, tally in zip(window, together, strict=True)}


def _loads(window: Mapping[int, Tensor]) -> dict[int, Load]:
    return {layer: Load.of(tally) for layer, tally in window.items()}

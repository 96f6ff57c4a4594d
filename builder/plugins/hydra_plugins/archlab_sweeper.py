"""Hydra's door to the planned sweeps of this project: Hydra looks for plugins in packages of this name."""

from __future__ import annotations

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

TRAIN = "train"
"""The root config of a run."""


class PlannedSweeper(BasicSweeper):
    """Hydra's sweeper, with a plan before the launch and each job in a process of its own (builder.sweeps)."""

    def __init__(self, max_batch_size: int | None = None, params: dict[str, str] | None = None, **sweep: Any):
        super().__init__(max_batch_size, params)
        self._sweep = {key: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for key, v in sweep.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from builder.sweeps.launched import launched

        function = launched if self._trains(config) else task_function
        super().setup(hydra_context=hydra_context, task_function=function, config=config)

    @staticmethod
    def _trains(config: DictConfig) -> bool:
        """Whether it is runs that are swept over; other jobs are done one after the other, as Hydra's sweeper does."""
        return config.hydra.job.config_name == TRAIN

    def sweep(self, arguments: list[str]) -> None:
        from builder.sweeps.run import sweep

        if self.config is not None and not self._trains(self.config):
            super().sweep(arguments)
            return
        assert self.hydra_context is not None and self.config is not None and self.launcher is not None
        sweep(
            self._sweep,
            [*self._parse_config(), *arguments],
            self.config,
            self.hydra_context.config_loader,
            self.launcher,
        )

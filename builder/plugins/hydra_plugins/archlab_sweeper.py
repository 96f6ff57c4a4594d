"""Hydra's door to the planned sweeps of this project: Hydra looks for plugins in packages of this name."""

from __future__ import annotations

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf


class PlannedSweeper(BasicSweeper):
    """Hydra's sweeper, with a plan before the launch and each job in a process of its own (builder.sweeps)."""

    def __init__(self, max_batch_size: int | None = None, params: dict[str, str] | None = None, **sweep: Any):
        super().__init__(max_batch_size, params)
        self._sweep = {key: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for key, v in sweep.items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from builder.sweeps.launched import launched

        super().setup(hydra_context=hydra_context, task_function=launched, config=config)

    def sweep(self, arguments: list[str]) -> None:
        from builder.sweeps.run import sweep

        assert self.hydra_context is not None and self.config is not None and self.launcher is not None
        sweep(
            self._sweep,
            [*self._parse_config(), *arguments],
            self.config,
            self.hydra_context.config_loader,
            self.launcher,
        )

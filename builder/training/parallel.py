"""How a model is spread over processes: Lightning's strategies, as the trainer group names them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor

from .divided import divided, whole
from .shards import read_shards, write_shards


def ddp(timeout_seconds: int = 600, find_unused_parameters: bool = False) -> Strategy:
    """Every rank holds the whole model and reads a part of each batch; gradients are averaged as they come."""
    timeout = timedelta(seconds=timeout_seconds)
    return DDPStrategy(timeout=timeout, find_unused_parameters=find_unused_parameters, gradient_as_bucket_view=True)


class Sharded(ModelParallelStrategy):
    """Every rank holds a part of weights, gradients and moments: FSDP2 over `data_parallel_size` ranks, times tensor
    parallelism over `tensor_parallel_size`. With `expert_parallel` the experts of a mixture are divided over the
    former, each whole on one rank, and tokens travel to them.

    A checkpoint is one file, like any other run's, so that a run may go on in another number of processes; or, with
    `sharded_checkpoints`, a folder to which every rank writes its part, and nothing is gathered. Each process builds
    the whole model before it is divided, so that all begin as one process would.
    """

    def __init__(
        self,
        data_parallel_size: int | str = "auto",
        tensor_parallel_size: int = 1,
        expert_parallel: bool = False,
        sharded_checkpoints: bool = False,
        timeout_seconds: int = 600,
    ):
        self.expert_parallel = expert_parallel
        timeout = timedelta(seconds=timeout_seconds)
        super().__init__(data_parallel_size, tensor_parallel_size, sharded_checkpoints, timeout=timeout)  # type: ignore[arg-type]

    def setup_environment(self) -> None:
        if self._data_parallel_size == "auto":  # Lightning means the number of nodes by it
            self._data_parallel_size = self.num_nodes * self.num_processes // int(self._tensor_parallel_size)
        super().setup_environment()

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return self._to_save(self.lightning_module.state_dict())

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        inner = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        return self._to_save(inner.state_dict())

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        if self._save_distributed_checkpoint:
            write_shards(checkpoint, Path(self.broadcast(filepath)))
        elif self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath)
        self.barrier()

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        path = Path(self.broadcast(checkpoint_path))
        if path.is_dir():
            return read_shards(path, like=self._places())
        return self.checkpoint_io.load_checkpoint(path)

    @torch.no_grad()
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        there = self.lightning_module.state_dict()
        saved = {name: _as(there.get(name), value) for name, value in checkpoint["state_dict"].items()}
        self.lightning_module.load_state_dict(saved, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            owners = dict(enumerate(parameter for group in optimizer.param_groups for parameter in group["params"]))
            state = {
                number: {name: _as(owners[number], value) for name, value in kept.items()}
                for number, kept in saved["state"].items()
            }
            optimizer.load_state_dict(saved | {"state": state})

    def _to_save(self, state: Any) -> Any:
        """Parts as they are, or the wholes they make: asked of every rank, in the same order."""
        return state if self._save_distributed_checkpoint else whole(state, to="cpu")

    def _places(self) -> dict[str, Tensor]:
        """The tensor that each divided one of a checkpoint belongs to, by its path there."""
        assert self.lightning_module is not None
        model: Any = self.lightning_module.model
        places = {f"state_dict.{name}": value for name, value in model.state_dict().items()}
        for index, optimizer in enumerate(self.optimizers):
            for number, parameter in enumerate(p for group in optimizer.param_groups for p in group["params"]):
                places[f"optimizer_states.{index}.state.{number}"] = parameter
        return places


def _as(owner: Any, value: Any) -> Any:
    """What a checkpoint holds of a parameter: divided as it is where it is of its shape, and as it stands elsewhere."""
    alike = isinstance(owner, Tensor) and isinstance(value, Tensor) and value.shape == owner.shape
    return divided(value, owner) if alike else value

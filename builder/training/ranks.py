"""The processes that share a step: which rows this one reads, and how what they found is added up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

if TYPE_CHECKING:
    import lightning as L


@dataclass(frozen=True)
class Ranks:
    """This process is number `rank` of `size` that read different rows of a batch; `group` is theirs, None if alone.

    Under tensor parallelism several processes read the same rows, and are one rank here.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @classmethod
    def of(cls, trainer: L.Trainer) -> Ranks:
        """Those of a trainer whose strategy has been set up."""
        mesh = getattr(trainer.strategy, "device_mesh", None)
        if mesh is not None:
            rows = mesh["data_parallel"]
            return cls(rows.get_local_rank(), rows.size(), rows.get_group())
        if trainer.world_size == 1:
            return cls()
        return cls(trainer.global_rank, trainer.world_size, dist.group.WORLD)

    def sum(self, value: Tensor) -> Tensor:
        """The sum of everyone's `value`, which must be of one shape and dtype; no gradient passes."""
        if self.size == 1:
            return value
        total = value.detach().clone()
        dist.all_reduce(total, group=self.group)
        return total


def apart(trainer: L.Trainer, model: Any) -> AbstractContextManager[Any]:
    """While it holds, gradients add up on each rank by itself; the next backward pass outside of it sums them all."""
    wrapper: Any = trainer.strategy.model
    if hasattr(wrapper, "no_sync"):  # DistributedDataParallel
        return wrapper.no_sync()
    return _unsynced(model) if hasattr(model, "set_requires_gradient_sync") else nullcontext()  # FSDP2


@contextmanager
def _unsynced(model: Any) -> Iterator[None]:
    model.set_requires_gradient_sync(False)
    try:
        yield
    finally:
        model.set_requires_gradient_sync(True)

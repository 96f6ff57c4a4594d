"""One answer among several ranks, so that all of them do the same thing at the same step."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
import torch.distributed as dist


class Highest:
    """The highest number that any rank names, to be asked on every rank at the same steps.

    Alone, that is one's own, at once. Among several ranks it is the answer to the question of one step before: by now
    it has arrived over the network of the CPUs, and no rank waits for another, nor any for its device.
    """

    def __init__(self) -> None:
        self._group: Any = None
        self._asked: tuple[Any, torch.Tensor] | None = None

    def __call__(self, trainer: L.Trainer, mine: int) -> int:
        if trainer.world_size == 1:
            return mine
        before = self._answer()
        if self._group is None:
            self._group = dist.new_group(backend="gloo")
        told = torch.tensor(mine)
        self._asked = dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group, async_op=True), told
        return before

    def forget(self) -> None:
        """Lets go of the question under way, on every rank: what it asked about has been done."""
        self._answer()

    def _answer(self) -> int:
        if self._asked is None:
            return 0
        work, told = self._asked
        self._asked = None
        work.wait()
        return int(told)

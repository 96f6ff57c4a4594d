"""Experts on several ranks: rows travel to the rank that holds their expert, and what it makes of them travels back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_to_all_single_autograd as all_to_all


class Exchange:
    """X experts over R ranks, X / R of them on each, in order (Lepikhin et al. 2021, "GShard").

    Every rank takes part in every pass, with rows or without. How many rows travel is read on the host: the one place
    where a step waits for its device, twice in a layer.
    """

    def __init__(self, group: Any):
        self.group, self.size = group, dist.get_world_size(group)

    def through(self, x: Tensor, counts: Tensor, experts: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """x (M, D) sorted by expert, `counts` (X,) of them -> (M, D); `experts` is given the rows that came here,
        sorted by the experts that lie here, and how many each of these has."""
        here = torch.empty_like(counts)
        dist.all_to_all_single(here, counts, group=self.group)
        asked = here.view(self.size, -1)  # (R, X / R) rows from each rank for each expert here
        sent, got = counts.view(self.size, -1).sum(1).tolist(), asked.sum(1).tolist()
        rows = all_to_all(x[: sum(sent)], got, sent, self.group)  # sorted by rank, then by expert
        owner = torch.arange(asked.shape[1], device=x.device).repeat(self.size).repeat_interleave(asked.flatten())
        order = owner.argsort(stable=True)
        made = experts(rows[order], asked.sum(0))[order.argsort()]
        y = all_to_all(made, sent, got, self.group)
        return torch.cat((y, y.new_zeros(len(x) - len(y), y.shape[1])))

"""Tensors that ranks hold parts of: made whole, divided again, and told apart by the ranks that they lie on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor


def whole(state: Any, to: str | None = None) -> Any:
    """A nest of tensors with every divided one gathered, and each then moved `to` a device, if one is named; asked of
    every rank that holds a part, in the same order."""
    if isinstance(state, DTensor):
        return state.full_tensor() if to is None else state.full_tensor().to(to)
    if isinstance(state, dict):
        return {key: whole(value, to) for key, value in state.items()}
    return [whole(value, to) for value in state] if isinstance(state, list) else state


def divided(value: Tensor, like: Tensor) -> Tensor:
    """A tensor that every rank has whole, where `like` lies, and divided as it is: each rank keeps its part."""
    if not isinstance(like, DTensor) or isinstance(value, DTensor):
        return value.to(like.device)
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def by_mesh(parameters: Iterable[Tensor]) -> dict[Any, list[Tensor]]:
    """The parameters by the processes that they are divided over, None if over none: one operation takes no others."""
    alike: dict[Any, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        alike[getattr(parameter, "device_mesh", None)].append(parameter)
    return alike

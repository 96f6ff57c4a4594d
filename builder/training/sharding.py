"""Dividing a model over processes: FSDP2 over those that read different rows, tensor parallelism over the others."""

from __future__ import annotations

from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from builder.components.ffn import FFN
from builder.model.language_model import LanguageModel

_STYLES: dict[str, type[ParallelStyle]] = {"columns": ColwiseParallel, "rows": RowwiseParallel}


def shard(model: LanguageModel, mesh: DeviceMesh, experts: bool = False) -> None:
    """Divides the parameters of a model, in place, over the axes `data_parallel` and `tensor_parallel` of a mesh.

    Each block, and what is left of the model, is gathered when it is computed, and its gradients are summed where they
    belong (Zhao et al. 2023). Parts that say how divide each product over the other axis (Shoeybi et al. 2020). With
    `experts` each rank of the first axis has experts of its own, which are never gathered: tokens come to them.
    """
    tensors, rows = mesh["tensor_parallel"], mesh["data_parallel"]
    if tensors.size() > 1:
        parts = [block.get_submodule(part.kind) for layer, block in model.blocks() for part in layer.parts]
        for part in dict.fromkeys(parts):
            _divide(part, tensors)
    if rows.size() > 1:
        parts = [part for part in model.modules() if isinstance(part, FFN)] if experts else []
        apart = {parameter for part in parts for parameter in part.spread_over(rows)}
        for block in dict.fromkeys(block for _, block in model.blocks()):
            fully_shard(block, mesh=rows, ignored_params=apart)
        fully_shard(model, mesh=rows, ignored_params=apart)


def _divide(part: Any, mesh: DeviceMesh) -> None:
    plan: dict[str, ParallelStyle] = {name: _STYLES[axis]() for name, axis in part.divide(mesh.size()).items()}
    if plan:
        parallelize_module(part, mesh, plan)

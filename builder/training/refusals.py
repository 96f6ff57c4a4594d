"""What a run would find out too late: refused before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from builder.components.ffn import FFN
from builder.division import Division
from builder.errors import Problem, shown
from builder.model.assemble import build
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec

_HALF = ("16-mixed", "16-true", "16")


def refusals(spec: RunSpec) -> Iterator[Problem]:
    """Every problem between the model and the way it is to be trained."""
    optimizer: Any = spec.optimizer.component
    model = build(spec.model, device="meta")
    yield from optimizer.refuses(spec, model)
    yield from _precision(spec)
    yield from _rows(spec)
    yield from _divisions(spec, model)  # last: it divides the model, to see what can be


def _precision(spec: RunSpec) -> Iterator[Problem]:
    asked, on = str(spec.trainer.get("precision", "")), spec.trainer.get("accelerator", "auto")
    if asked in _HALF and (on == "cpu" or not torch.cuda.is_available()):
        rule = "float16 trains on a GPU; a CPU has bf16-mixed, which Lightning would take in its place unasked"
        yield Problem("trainer.precision", shown(asked), rule, "trainer.precision=bf16-mixed")


def _rows(spec: RunSpec) -> Iterator[Problem]:
    readers = Division.of(spec.trainer).data
    if spec.rows % readers:
        near = max(1, round(spec.rows / readers)) * readers
        found = f"{spec.rows} sequences in a step of {readers} ranks"
        rule = "each rank reads as many, so that all take part in every pass"
        yield Problem("batch.sequences", found, rule, f"batch.sequences={near}")


def _divisions(spec: RunSpec, model: LanguageModel) -> Iterator[Problem]:
    spread, path = Division.of(spec.trainer), "trainer.strategy"
    groups = [part.n_groups for part in model.modules() if isinstance(part, FFN) and part.n_groups]
    if spread.experts and (not groups or any(count % spread.data for count in groups)):
        found = f"true over {spread.data} ranks, with {', '.join(map(str, sorted(set(groups)))) or 'no'} experts"
        rule = "each rank holds as many experts, all of their parameters in linear maps"
        yield Problem(f"{path}.expert_parallel", found, rule, "trainer=fsdp, or as many experts as ranks divide")
    parts: list[Any] = [block.get_submodule(part.kind) for layer, block in model.blocks() for part in layer.parts]
    places: dict[torch.nn.Parameter, int] = {}
    for number, (_, block) in enumerate(model.blocks()):
        for parameter in block.parameters():
            places.setdefault(parameter, number)
    several = any(places[p] != number for number, (_, block) in enumerate(model.blocks()) for p in block.parameters())
    if several and (spread.shards > 1 or spread.tensor > 1):
        found = f"weights divided over {max(spread.shards, spread.tensor)} ranks, and some serve several layers"
        yield Problem(path, found, "each layer is gathered by itself, with weights of its own", "trainer=ddp")
    if spread.tensor > 1 and not any(part.divide(spread.tensor) for part in parts):
        rule = "some part of a layer can be divided: heads and KV heads without a bias by head, or the width of an ffn"
        yield Problem(f"{path}.tensor_parallel_size", str(spread.tensor), rule, "trainer=fsdp")

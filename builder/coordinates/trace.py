"""One copy of the model on its first steps: how large what every part gives is, and how far it has moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from builder.model.assemble import build
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec, RunSpec


class Quantity(NamedTuple):
    """What is measured: the embedding, the stream behind a layer, what a slot adds to it there, or the logits."""

    what: str
    layer: int | None = None

    def __str__(self) -> str:
        return self.what if self.layer is None else f"{self.what}, layer {self.layer}"


Trace = dict[Quantity, tuple[Tensor, Tensor]]
"""By quantity, the mean of |x| and of |x - x_0| after 0, 1, 2 ... steps, (steps + 1,) in float64 on the CPU."""


def trace(spec: RunSpec, copy: ModelSpec, seed: int, tokens: Tensor, steps: int) -> Trace:
    """Trains `copy` on `tokens` (B, T + 1), the same at each step, with the objective and optimizer of the run.

    The learning rate is the peak, without a schedule, and nothing is dropped or clipped.
    """
    model = build(copy, device=tokens.device, seed=seed).eval()
    objective, optimizer = _made(spec, model)
    task = objective.task({"tokens": tokens})
    seen: list[dict[Quantity, Tensor]] = []
    for step in range(steps + 1):
        with _listening(model, copy) as heard:
            output = model(task.inputs, attention_mask=task.attention_mask)
        seen.append(heard | {Quantity("logits"): output.logits.detach()})
        if step < steps:
            total, targets = objective.loss(output.logits, task)
            optimizer.zero_grad()
            (total / targets).backward()
            optimizer.step()
    first = seen[0]
    return {
        key: (_means(after[key] for after in seen), _means(after[key] - first[key] for after in seen)) for key in first
    }


def _made(spec: RunSpec, model: LanguageModel) -> tuple[Any, torch.optim.Optimizer]:
    objective: Any = spec.objective.component
    optimizer: Any = spec.optimizer.component
    return objective(spec.objective), optimizer.build(spec.optimizer, model)


class _listening:
    """While it lasts, what every part of the model gives is kept."""

    def __init__(self, model: LanguageModel, spec: ModelSpec):
        self.parts = dict(_parts(model, spec))
        self.hooks = ExitStack()

    def __enter__(self) -> dict[Quantity, Tensor]:
        heard: dict[Quantity, Tensor] = {}
        for quantity, module in self.parts.items():
            self.hooks.callback(module.register_forward_hook(_keep(heard, quantity)).remove)
        return heard

    def __exit__(self, *_: Any) -> None:
        self.hooks.close()


def _keep(heard: dict[Quantity, Tensor], quantity: Quantity) -> Callable[..., None]:
    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        heard[quantity] = output.detach()

    return keep


def _parts(model: LanguageModel, spec: ModelSpec) -> Iterator[tuple[Quantity, nn.Module]]:
    yield Quantity("embedding"), model.embedding
    for layer, block in zip(spec.layers, model.layers, strict=True):
        yield Quantity("stream", layer.index), block
        for part in layer.parts:
            yield Quantity(part.slot, layer.index), block.get_submodule(part.kind)


def _means(values: Iterator[Tensor]) -> Tensor:
    return torch.stack([value.double().abs().mean() for value in values]).cpu()

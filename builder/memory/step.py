"""One training step of a model, played through on fake tensors: its passes, and then its update."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from builder.components.ffn import FFN
from builder.model.assemble import build
from builder.model.language_model import LanguageModel
from builder.spec import ModelSpec, RunSpec

from .bytes import Bytes
from .watch import Stretch, Watch

FIRST = "embedding"
"""The first stretch of a pass."""


@dataclass(frozen=True)
class Work:
    """What one rank computes: `rows` sequences a step, `micro` of them at once, on a kind of device."""

    rows: int
    micro: int
    device: str
    precision: str

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        return torch.autocast(self.device, self._half) if "mixed" in self.precision else nullcontext()

    @property
    def dtype(self) -> torch.dtype | None:
        """What weights are cast to; None: they stay as they are built."""
        return self._half if "true" in self.precision and "16" in self.precision else None

    @property
    def _half(self) -> torch.dtype:
        return torch.bfloat16 if "bf16" in self.precision else torch.float16


@dataclass(frozen=True)
class Update:
    """The end of a step.

    between     what is held between steps
    gradients   those of all parameters
    rise        what clipping, the optimizer's step and the average hold beside that when they hold most
    layer       bytes of the weights of the largest layer
    dense       the same, parts that tokens choose among left out
    ends        those of what stands before and behind the layers
    """

    between: Bytes
    gradients: Bytes
    rise: Bytes
    layer: int
    dense: int
    ends: int

    def grown(self, smaller: Update, larger: Update, times: int) -> Update:
        """With `times` as much more as the larger one of two others has than the smaller one."""
        between = self.between + (larger.between - smaller.between) * times
        gradients = self.gradients + (larger.gradients - smaller.gradients) * times
        return replace(
            self, between=between, gradients=gradients, rise=self.rise + (larger.rise - smaller.rise) * times
        )


def passes(spec: RunSpec, model_spec: ModelSpec, work: Work, most: int | None = None) -> list[list[Stretch]]:
    """The stretches of the passes over a micro-batch: over the first one and, where there are more, over the second.

    Each: embedding, forward of every layer, logits and loss, backward of the loss, of every layer and of the embedding.
    They may have `most` operations, `watch.MOST` where that is None; raises Endless where they have more.
    """
    from builder.training.step import Step

    watch = Watch(most)
    model = _hollow(watch, model_spec, work).train()
    rows = min(work.rows, 2 * work.micro)  # those after the second are like it
    with _apart(work), watch:
        with watch.labelled("weights"):  # what is there before a step, as they are
            objective: Any = spec.objective.component
            batch = objective(spec.objective).blank(rows, model_spec.train_length, work.device)
        step = Step(_uncompiled(spec), model)
        with _cut(watch, model), work.autocast(), torch.autocast(work.device, enabled=False):
            watch.cut("preparation")
            step.backward(_stand_in(watch, work), batch)
            done = watch.stretches()[1:]
    starts = [number for number, stretch in enumerate(done) if stretch.name == FIRST]
    return [done[start:end] for start, end in zip([0, *starts[1:]], [*starts[1:], None], strict=True)]


def update(spec: RunSpec, model_spec: ModelSpec, work: Work) -> Update:
    """Clipping, the optimizer's step and the average of the weights, when steps went before."""
    from builder.training.averaging import averages
    from builder.training.step import Step

    optimizer: Any = spec.optimizer.component
    watch = Watch()
    model = _hollow(watch, model_spec, work)
    with _apart(work), watch, watch.labelled("optimizer"):
        step = Step(_uncompiled(spec), model)
        stepper = optimizer.build(spec.optimizer, model)
        average = averages(spec.ema, optimizer.deployed(stepper))
        with watch.labelled("gradients"):
            for group in stepper.param_groups:
                for parameter in group["params"]:
                    parameter.grad = torch.empty_like(parameter)
        stepper.step()  # what is kept for each parameter exists from the first step on
        average.update(model)
        watch.cut("update")
        step.clip(stepper)
        stepper.step()
        average.update(model)
    last = watch.stretches()[-1]
    gradients = Bytes(gradients=last.start.gradients)
    layers = [_size(layer) for layer in model.layers]
    dense = [
        _size(layer) - sum(_size(part) for part in layer.modules() if isinstance(part, FFN) and part.n_groups)
        for layer in model.layers
    ]
    return Update(last.start - gradients, gradients, last.rise, max(layers), max(dense), _size(model) - sum(layers))


def _size(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


def _hollow(watch: Watch, spec: ModelSpec, work: Work) -> LanguageModel:
    """The model that a spec describes, its weights without storage and counted as such."""
    model = build(spec, device="meta", dtype=work.dtype)
    made: dict[Tensor, Tensor] = {}  # a tied table is one thing here too

    def played(held: Tensor) -> Tensor:
        if held not in made:
            empty = torch.empty(held.shape, dtype=held.dtype, device=work.device)
            made[held] = nn.Parameter(empty, held.requires_grad) if isinstance(held, nn.Parameter) else empty
        return made[held]

    with watch, watch.labelled("weights"):
        for module in model.modules():
            for name, held in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
                setattr(module, name, played(held))
    return model


def _uncompiled(spec: RunSpec) -> RunSpec:
    return spec.model_copy(update={"compile": False})


def _apart(work: Work) -> AbstractContextManager[Any]:
    """Leaves torch's generators as they are, though a step seeds them."""
    return torch.random.fork_rng([torch.cuda.current_device()] if work.device == "cuda" else [])


def _stand_in(watch: Watch, work: Work) -> Any:
    """What a step asks of the module around it, on one rank, which cuts what is watched where its passes begin."""
    from builder.training.ranks import Ranks
    from builder.training.tallies import Tallies

    def forward_context() -> AbstractContextManager[Any]:
        if torch.is_grad_enabled():
            watch.cut(FIRST)
        return work.autocast()

    def backward(loss: Tensor) -> None:
        watch.cut("backward of the loss")
        loss.backward()

    return SimpleNamespace(
        ranks=Ranks(),
        micro_batch=work.micro,
        tallies=Tallies(),
        global_step=0,
        device=torch.device(work.device),
        manual_backward=backward,
        trainer=SimpleNamespace(
            precision_plugin=SimpleNamespace(forward_context=forward_context), strategy=SimpleNamespace(model=None)
        ),
    )


@contextmanager
def _cut(watch: Watch, model: LanguageModel) -> Iterator[None]:
    """Has the layers of a model cut what is watched where a pass comes by, forward and backward."""
    last = len(model.layers) - 1
    hooks: list[Any] = []

    def entered(index: int, _: nn.Module, given: tuple[Tensor, ...]) -> None:
        if not _going():
            return
        watch.cut(f"forward of layer {index}")
        if index == 0:
            given[0].register_hook(lambda _: watch.cut("backward of the embedding"))

    def left(index: int, _: nn.Module, given: Any, x: Tensor) -> None:
        if not _going():
            return
        x.register_hook(lambda _: watch.cut(f"backward of layer {index}"))
        if index == last:
            watch.cut("logits and loss")

    def ended(_: nn.Module, given: Any, hidden: Tensor) -> None:
        if not _going():
            return
        watch.label = "logits"
        hidden.register_hook(lambda _: setattr(watch, "label", "activations"))

    places: dict[nn.Module, list[int]] = {}
    for index, layer in enumerate(model.layers):  # a shared one stands at several places
        places.setdefault(layer, []).append(index)
    for layer, indices in places.items():
        coming, going = cycle(indices), cycle(indices)
        hooks.append(layer.register_forward_pre_hook(lambda *told, at=coming: entered(next(at), *told)))
        hooks.append(layer.register_forward_hook(lambda *told, at=going: left(next(at), *told)))
    end = model.layers[last] if model.final_norm is None else model.final_norm
    hooks.append(end.register_forward_hook(ended))
    for parameter in model.parameters():
        if parameter.requires_grad:
            hooks.append(parameter.register_post_accumulate_grad_hook(lambda p: watch.move([p.grad], "gradients")))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _going() -> bool:
    """Whether this is a forward pass that a backward pass will follow, and no layer that is computed again in one."""
    return torch.is_grad_enabled() and torch._C._current_graph_task_id() < 0

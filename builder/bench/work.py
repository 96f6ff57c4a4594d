"""The work that is timed: a training step, a prefill, a row of decode steps, each as the project does it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from builder.spec import RunSpec
from builder.training.objective import Task

from .contender import Contender
from .settings import Workload


def tokens(spec: RunSpec, rows: int, length: int, device: torch.device) -> Tensor:
    """Random ids (rows, length), the same for every contender."""
    generator = torch.Generator().manual_seed(spec.seed)
    return torch.randint(spec.model.vocab_size or 1, (rows, length), generator=generator).to(device)


PARTS: tuple[str, ...] = ("forward", "backward", "update")
"""What a training step consists of; the loss belongs to the first, clipping to the last."""


class TrainingStep:
    """Forward, loss, backward, clipping and the optimizer's step, with the run's own objective and optimizer."""

    def __init__(self, contender: Contender, spec: RunSpec, work: Workload):
        objective: Any = spec.objective.component
        optimizer: Any = spec.optimizer.component
        self.contender, self.work = contender, work
        self.objective = objective(spec.objective)
        self.losses = contender.losses(self.objective, spec)
        self.optimizer = optimizer.build(spec.optimizer, contender.module.train())
        self.parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        self.limit = spec.trainer.get("gradient_clip_val") or math.inf
        self.batch = {"tokens": tokens(spec, work.sequences, work.length + 1, work.place)}
        self._done: Callable[[str], object] = lambda part: None

    def step(self) -> Tensor:
        """One step of training, in micro-batches as the run has it; its loss, a scalar that no one has waited for."""
        self.optimizer.zero_grad()
        # Lightning's training_step too lies in autocast, which so keeps its casts of the weights for a whole step
        with self._precision(), torch.autocast(self.work.device, enabled=False):
            task = self.objective.task(self.batch)
            targets, tokens, _ = task.counts
            parts = [self._backward(part, targets, tokens) for part in task.split(self.work.micro_batch)]
            torch.nn.utils.clip_grad_norm_(self.parameters, self.limit)
            self.optimizer.step()
            self._done("update")
        return torch.stack(parts).sum()

    def twice(self) -> None:
        """Two steps: the moments exist from the first one on, and meet activations in the second."""
        self.step()
        self.step()

    def parts(self) -> dict[str, float]:
        """The seconds of each of PARTS in one step, the device awaited after each."""
        seconds, last = dict.fromkeys(PARTS, 0.0), _now(self.work.place)

        def done(part: str) -> None:
            nonlocal last
            now = _now(self.work.place)
            seconds[part], last = seconds[part] + now - last, now

        self._done = done
        try:
            self.step()
        finally:
            self._done = lambda part: None
        return seconds

    def _backward(self, part: Task, targets: Tensor, tokens: Tensor) -> Tensor:
        """Leaves the gradient of a part of the batch; returns its share of the loss."""
        with self._precision():
            total, added = self.losses(part)
        loss = total / targets.clamp_min(1) + added * (part.counts[1] / tokens)
        self._done("forward")
        loss.backward()
        self._done("backward")
        return loss.detach()

    def __call__(self) -> float:
        start = _now(self.work.place)
        self.step()
        return _now(self.work.place) - start

    def _precision(self) -> AbstractContextManager[Any]:
        mixed = self.work.torch_dtype != torch.float32
        return torch.autocast(self.work.device, self.work.torch_dtype) if mixed else nullcontext()


class Generation:
    """A prompt and what follows it, greedily; the base of what is timed of it."""

    def __init__(self, contender: Contender, spec: RunSpec, work: Workload, rows: int):
        self.contender, self.work = contender, work
        self.prompt = tokens(spec, rows, work.prompt_length, work.place)


class Prefill(Generation):
    """The time of a prompt, as the model reads it: that to the first token."""

    @torch.inference_mode()
    def __call__(self) -> float:
        start = _now(self.work.place)
        self.contender.prefill(self.prompt, self.work.prompt_length + self.work.new_tokens)[0][:, -1:].argmax(-1)
        return _now(self.work.place) - start


class Decode(Generation):
    """The time of the tokens after the first, a token, by the call that a user makes."""

    def __call__(self) -> float:
        times, count = [], 0

        def heard() -> None:
            nonlocal count
            count += 1
            if count in (1, self.work.new_tokens):  # no others: a GPU would be waited for
                times.append(_now(self.work.place))

        self.contender.generate(self.prompt, self.work.new_tokens, heard)
        first, last = times
        return (last - first) / (self.work.new_tokens - 1)


class Generate(Generation):
    """The time of a whole answer, prompt and all, by the call that a user makes."""

    def __call__(self) -> float:
        start = _now(self.work.place)
        self.contender.generate(self.prompt, self.work.new_tokens)
        return _now(self.work.place) - start


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()

"""What is measured: a model behind the few calls that training and generation make of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from builder.generation import generate
from builder.model.assemble import build
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec
from builder.training.losses import Losses
from builder.training.objective import Objective, Task

Owed = Callable[[Task], tuple[Tensor, Any]]
"""(summed nats, what is added to their mean) of a training batch."""
Heard = Callable[[], object]


class Contender:
    """A model to measure: `name` stands in the table, `module` holds the parameters."""

    name: str
    module: nn.Module

    def compile(self) -> None:
        """Has the calls of `train` compiled, and of ours those of `generate`; `prefill` and `decode` are not."""
        raise NotImplementedError

    def train(self, task: Task) -> tuple[Tensor, Any]:
        """(logits (B, T, V), what is added to the loss) of a training batch."""
        raise NotImplementedError

    def losses(self, objective: Objective, spec: RunSpec) -> Owed:
        """What a training step goes backward from."""

        def of(task: Task) -> tuple[Tensor, Any]:
            logits, added = self.train(task)
            return objective.loss(logits, task)[0], added

        return of

    def prefill(self, tokens: Tensor, max_length: int) -> tuple[Tensor, Any]:
        """(logits (B, 1, V) of the last position, the state behind it) of prompts (B, T)."""
        raise NotImplementedError

    def decode(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(logits (B, 1, V), the state behind them) of one more token (B, 1) in each row."""
        raise NotImplementedError

    def generate(self, tokens: Tensor, new: int, heard: Heard | None = None) -> Tensor:
        """The ids (B, N = new) that follow prompts (B, T), greedily, by the call that a user makes; `heard` is called
        as each column of them is known."""
        raise NotImplementedError

    @property
    def parameters(self) -> int:
        """How many numbers are trained, a tied table once."""
        return sum(parameter.numel() for parameter in self.module.parameters())


class Ours(Contender):
    """The model that a spec describes."""

    name = "archlab"

    def __init__(self, spec: RunSpec, device: torch.device):
        self.module: LanguageModel = build(spec.model, device=device, seed=spec.seed)
        self._compiled = False

    def compile(self) -> None:
        self._compiled = True

    def train(self, task: Task) -> tuple[Tensor, Any]:
        output = self.module(task.inputs, attention_mask=task.attention_mask)
        return output.logits, sum(output.aux.losses.values())

    def losses(self, objective: Objective, spec: RunSpec) -> Owed:
        """As the run computes them: recomputed, fused and, once `compile` was called, compiled as it says."""
        spec = spec if self._compiled else spec.model_copy(update={"compile": False})
        losses = Losses(self.module, objective, spec)

        def of(task: Task) -> tuple[Tensor, Any]:
            total, _, aux = losses.of(task)
            return total, sum(aux.losses.values())

        return of

    def prefill(self, tokens: Tensor, max_length: int) -> tuple[Tensor, Any]:
        state = self.module.new_state(len(tokens), max_length)
        return self.decode(tokens, state)

    def decode(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self.module(ids, state=state, last_only=True).logits, state

    def generate(self, tokens: Tensor, new: int, heard: Heard | None = None) -> Tensor:
        on_token = None if heard is None else lambda step, ids: heard()
        return generate(self.module, tokens, max_new_tokens=new, on_token=on_token, compile=self._compiled).tokens

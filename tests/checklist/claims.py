"""What is claimed of a config that passes: it is built, trains a step, generates, and is saved, as a run does it."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from builder import build, generate
from builder.data import Corpus
from builder.data.loader import TrainBatches
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec
from builder.training.checkpoint import read, write
from builder.training.ranks import Ranks
from builder.training.step import Step
from builder.training.tallies import Tallies

from .remedies import Verdict


class _OneProcess:
    """What a step asks of the LightningModule that takes it: one process, without Lightning's loops."""

    ranks, global_step, device = Ranks(), 0, torch.device("cpu")

    def __init__(self, micro_batch: int):
        self.micro_batch, self.tallies = micro_batch, Tallies()
        self.trainer = SimpleNamespace(
            precision_plugin=SimpleNamespace(forward_context=nullcontext), strategy=SimpleNamespace(model=None)
        )

    def manual_backward(self, loss: Tensor) -> None:
        loss.backward()


PASS_BY_PASS = "eval_capacity_factor"
"""The knob of which the checklist warns that an answer depends on what else is in its pass."""


def hold(verdict: Verdict, folder: Path) -> None:
    """Raises AssertionError where something of what is claimed doesn't hold."""
    spec, corpus = verdict.spec, verdict.corpus
    assert spec is not None and corpus is not None
    model = build(spec.model, seed=spec.seed)
    model.n_tokens = len(corpus.tokenizer)
    _trains(spec, model, corpus)
    model.eval()
    wide = copy.deepcopy(model).double()
    task = Step(spec, wide).objective.task(_batch(spec, corpus))
    tokens, beside = task.read
    _answers(wide, tokens, beside, alike=not any(path.endswith(PASS_BY_PASS) for path in verdict.warned))
    _is_saved(spec, model, tokens, beside, folder)


def _batch(spec: RunSpec, corpus: Corpus) -> dict[str, Tensor]:
    """The first batch, as the loader makes it."""
    objective: Any = spec.objective.component
    made = objective(spec.objective)
    collate = lambda batch, draws: made.collate(batch, draws, corpus.tokenizer)  # noqa: E731
    return TrainBatches(corpus.train, batch=spec.rows, seed=spec.seed, collate=collate).at(0)


def _trains(spec: RunSpec, model: LanguageModel, corpus: Corpus) -> None:
    """One step: finite loss and gradients, and something moves."""
    optimizer: Any = spec.optimizer.component
    moved = optimizer.build(spec.optimizer, model.train())
    asked = spec.batch.micro_batch
    training = _OneProcess(asked if isinstance(asked, int) else spec.rows)
    step = Step(spec, model)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    total, targets, _ = step.backward(training, _batch(spec, corpus))  # type: ignore[arg-type]
    assert total.isfinite(), f"the loss of the first step is {total}"
    assert targets > 0, "nothing in the first batch is a target"
    norm = step.clip(moved)
    assert norm.isfinite(), f"the gradient's norm is {norm}"
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    moved.step()
    training.tallies.settle(lambda value: value)
    after = dict(model.named_parameters())
    assert all(parameter.isfinite().all() for parameter in after.values())
    assert any((after[name] != value).any() for name, value in before.items()), "no parameter moved"


@torch.no_grad()
def _answers(model: LanguageModel, tokens: Tensor, beside: dict[str, Tensor], alike: bool) -> None:
    """Through its state it writes what it writes without; one that writes nothing says the same thing twice."""
    said = model(tokens, **beside).logits
    assert said.isfinite().all(), "the logits of the first batch aren't finite"
    assert torch.equal(said, model(tokens, **beside).logits)
    if not model.spec.causal or model.head.gives != "tokens":
        return
    room = model.deploy_length
    given: dict[str, Any] = {name: beside[name][:2, :room] for name in ("source", "source_mask") if name in beside}
    length = max(1, min(4, room - 1, tokens.shape[1]))
    prompt, new = _first(tokens[:2], beside, length), min(5, room - length)
    if new < 1:
        return
    answer = generate(model, prompt, max_new_tokens=new, **given).tokens  # (B, N)
    read = prompt
    for column in answer.unbind(1) if alike else ():
        whole = {"prefix": _is_prompt(read, length)} if model.spec.prefix else {}
        logits = model(read, **given, **whole).logits[:, -1, : model.n_tokens]  # (B, V)
        best = logits.max(-1).values - logits.gather(1, column[:, None])[:, 0]
        close = 1e-6 * logits.abs().amax(-1)  # tokens are chosen by logits in float32
        assert (best <= close).all(), f"token {read.shape[1] - length} is off by {best.max():.1e}"
        read = torch.cat((read, column[:, None]), 1)


def _first(tokens: Tensor, beside: dict[str, Tensor], length: int) -> Tensor:
    """The first tokens of some rows, pads replaced."""
    real = beside.get("attention_mask")
    head = tokens[:, :length]
    return head if real is None else torch.where(real[: len(head), :length], head, torch.zeros_like(head))


def _is_prompt(read: Tensor, length: int) -> Tensor:
    return (torch.arange(read.shape[1]) < length).expand(len(read), -1)


@torch.no_grad()
def _is_saved(spec: RunSpec, model: LanguageModel, tokens: Tensor, beside: dict[str, Tensor], folder: Path) -> None:
    """Written and read by the code of checkpoints into a model that was drawn otherwise: equal bit for bit."""
    file = folder / "model.ckpt"
    write({"state_dict": model.state_dict()}, file)
    other: nn.Module = build(spec.model, seed=spec.seed + 1).eval()
    other.load_state_dict(read(file)["state_dict"])
    assert torch.equal(model(tokens, **beside).logits, other(tokens, **beside).logits)

"""From a checked spec to a trained model in a run folder."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Timer
from rich.console import Console

from builder import targets
from builder.data.corpus import Corpus
from builder.errors import ConfigError, Problem, shown
from builder.experiments import together
from builder.experiments.load import describe
from builder.experiments.metrics import Axes, finite
from builder.model.assemble import assemble, build
from builder.model.language_model import LanguageModel
from builder.spec import RunSpec

from .callbacks.attention_maps import AttentionMaps
from .callbacks.checkpoint import Best
from .callbacks.interrupt import Interrupt, Interrupted
from .callbacks.progress import ProgressBar
from .callbacks.routing import Routing
from .callbacks.speed import Speed
from .callbacks.watched import Watched
from .checkpoint import AtomicIO
from .divided import whole
from .jsonl import JsonlLogger
from .module import Training
from .refusals import refusals
from .set_up import WITHOUT, Callbacks, callbacks, made_of, naming, try_out

HARDWARE = ("accelerator", "devices", "num_nodes", "precision", "strategy")
"""Arguments of the trainer that a machine may not have; shown when it refuses them."""

CLIPPING = ("gradient_clip_val", "gradient_clip_algorithm")
"""Arguments of the trainer that the step reads itself, since Lightning clips no gradient that it didn't make."""


def fit(
    spec: RunSpec,
    corpus: Corpus,
    folder: Path,
    axes: Axes,
    summary: Mapping[str, int],
    console: Console,
    checkpoint: Path | None = None,
) -> tuple[LanguageModel, dict[str, Any]]:
    """Trains the model of `spec` and returns it with the summary of its metrics; goes on from `checkpoint` if given.

    Raises callbacks.interrupt.Interrupted when the run was asked to stop; what it wrote by then can be resumed.
    """
    L.seed_everything(spec.seed, verbose=False)
    model = build(spec.model, seed=spec.seed)
    model.n_tokens = len(corpus.tokenizer)
    loggers: list[Any] = [JsonlLogger(folder / "metrics.jsonl", axes)]
    for name, node in spec.logger.items() if together.rank() == 0 else ():
        with made_of("logger", name, node):
            logger = targets.instantiate(node, folder=folder, spec=spec, axes=axes, summary=summary)
        loggers += [logger] if logger is not None else []  # one that couldn't start has said so
    theirs = callbacks(spec)
    training, routing = Training(spec, model, corpus), Routing()
    with _quiet(), Interrupt(console) as interrupt:
        trainer: L.Trainer = targets.instantiate(
            {key: value for key, value in spec.trainer.items() if key not in CLIPPING},
            logger=loggers,
            callbacks=[
                Watched(),
                *theirs.values(),
                routing,
                AttentionMaps(),
                Speed(axes),
                ProgressBar(console),
                interrupt,
            ],
            plugins=[AtomicIO()],
            default_root_dir=str(folder),
            **WITHOUT,
        )
        try:
            with naming(spec, theirs):
                trainer.fit(training, ckpt_path=str(checkpoint) if checkpoint else None)
        except SystemExit:  # what Lightning makes of a KeyboardInterrupt
            raise Interrupted("stopped at once") from None
    best = next((callback for callback in theirs.values() if isinstance(callback, Best)), None)
    training.averages.deploy(model)
    if training.device_mesh is not None:
        model = _gathered(spec, training)
    return model.eval(), {
        "step": trainer.global_step,
        "reason": _reason(trainer, spec, theirs),
        "last": {name: finite(float(value)) for name, value in trainer.callback_metrics.items()},
        "best": {best.monitor: best.value, "step": best.step} if best is not None and best.step else {},
        "routing": describe(routing.last(training)[0]),
        "threads": torch.get_num_threads(),
    }


def _gathered(spec: RunSpec, training: Training) -> LanguageModel:
    """A model of its own on the CPU, with the weights that the ranks hold parts of; every rank takes part."""
    model = assemble(spec.model)
    model.load_state_dict(whole(training.model.state_dict(), to="cpu"))
    model.n_tokens = training.model.n_tokens
    return model


def rehearse(spec: RunSpec) -> None:
    """Makes the trainer once and lets it go, before anything is written; raises ConfigError with what it refuses, and
    with what doesn't go together."""
    if refused := list(refusals(spec)):
        raise ConfigError(refused)
    with _quiet():
        try_out(spec)
    if (error := _refusal(spec.trainer)) is None:
        return
    said = next(iter(str(error).splitlines()), type(error).__name__)
    rule = f"arguments that {spec.trainer['_target_']} takes on this machine: {said}"
    given = [key for key in spec.trainer if key != "_target_"]
    others = {key: {k: v for k, v in spec.trainer.items() if k != key} for key in given}
    at_fault = [key for key in given if _refusal(others[key]) is None]
    if len(at_fault) != 1:  # several that don't go together, or several faults
        found = ", ".join(f"{key}={spec.trainer[key]}" for key in at_fault or HARDWARE if key in spec.trainer)
        raise ConfigError([Problem("trainer", found, rule, "trainer=auto, or trainer=cpu")])
    path, found = f"trainer.{at_fault[0]}", shown(spec.trainer[at_fault[0]])
    fix = f"leave {path} out" + ", or trainer=auto" * (at_fault[0] in HARDWARE)
    raise ConfigError([Problem(path, found, rule, fix)])


def _refusal(trainer: Mapping[str, Any]) -> Exception | None:
    """What a trainer of these arguments says where it can't be made."""
    try:
        with _quiet():
            targets.instantiate(trainer, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    except Exception as error:  # each check of Lightning's raises a type of its own
        return error
    return None


def _reason(trainer: L.Trainer, spec: RunSpec, theirs: Callbacks) -> str | None:
    """Why a run ended before its last step, which a callback such as EarlyStopping may ask for; None: it didn't."""
    if trainer.global_step >= spec.steps:
        return None
    every: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    messages = (getattr(callback, "stopping_reason_message", None) for callback in every)
    said = next((message.removesuffix(" Signaling Trainer to stop.") for message in messages if message), None)
    if said is None:
        others = {f"callbacks.{name}": each for name, each in theirs.items() if not _ours(each)}
        late = next((each for each in every if isinstance(each, Timer) and _is_over(each)), None)
        limit = f"trainer.max_time={spec.trainer.get('max_time')}"
        timed = next((name for name, each in others.items() if each is late), limit)
        said = f"by {' or '.join(others) or 'a callback'}" if late is None else f"the time of {timed} was over"
    return f"stopped early after step {trainer.global_step} of {spec.steps}: {said}"


def _ours(callback: object) -> bool:
    """Whether it is one of this project, none of which ends a run."""
    return type(callback).__module__.startswith("builder.")


def _is_over(timer: Timer) -> bool:
    left = timer.time_remaining()
    return left is not None and left <= 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps from the user what Lightning says of choices that are this project's own."""
    logs = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for said in ("does not have many workers", "has `__len__` defined", "LeafSpec", "sync_dist=True"):
                warnings.filterwarnings("ignore", message=f".*{said}.*")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)

"""What a config may ask of Lightning's Trainer, judged before there is one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from .errors import nearest

TAKEN = {
    *("callbacks", "logger", "plugins", "default_root_dir", "max_epochs", "accumulate_grad_batches"),
    *("enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"),
    "num_sanity_val_steps",
}
"""Arguments that the run sets itself."""

UNFIT = {
    "barebones": "a run logs, validates and keeps checkpoints, which it takes away",
    "overfit_batches": "a run reads one stream of batches and validates between them, which it leaves no room for",
    "fast_dev_run": "a run logs and keeps checkpoints, which it takes away; a short one is what debug=quick makes",
}
"""Arguments that no run goes with, unless they ask for nothing, and why."""

_COUNTS_STEPS = "a run is one epoch without end, counted in steps"
UNHEEDED: dict[str, tuple[tuple[Any, ...], str]] = {
    "limit_train_batches": ((None, 1.0), f"{_COUNTS_STEPS}: one of fewer is trainer.max_steps"),
    "check_val_every_n_epoch": ((None, 1), f"{_COUNTS_STEPS}: those between validations are val_check_interval"),
    "min_epochs": ((None, 0, 1), f"{_COUNTS_STEPS}: the fewest are trainer.min_steps"),
    "reload_dataloaders_every_n_epochs": ((0,), f"{_COUNTS_STEPS}, whose batches are drawn anew for each"),
    "limit_test_batches": ((None, 1.0), "a run trains and validates, and tests nothing"),
    "model_registry": ((None,), "a run keeps its checkpoints in its folder, and in W&B where logger says so"),
    "limit_predict_batches": ((None, 1.0), "a run trains and validates, and predicts nothing"),
}
"""Arguments that a run doesn't heed or can't go on with, unless they are one of a few values, and why. Folders that
hold them are read, and nothing is trained under them."""

CHOICES: dict[str, tuple[Any, ...]] = {
    "accelerator": ("auto", "cpu", "gpu", "cuda", "mps", "tpu"),
    "gradient_clip_algorithm": ("norm", "value"),
    "precision": (
        *("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "64-true"),
        *("transformer-engine", "transformer-engine-float16", "32", "bf16", "16", "64", 32, 16, 64),
    ),
}
"""Arguments that are one of a few words, where they aren't objects by `_target_`, or null."""

STEPS = (("max_steps", 1000), ("val_check_interval", 100), ("log_every_n_steps", 10))
"""Arguments that must be given, as so many optimizer steps, each with an example."""

COUNTED = (
    ("devices", "a number of devices, -1 or auto for all, or a list of their numbers"),
    ("num_nodes", "a number of machines"),
)
"""Arguments that say how many processes there are, which is asked before there is a trainer."""

Fault = tuple[str, object, str, str]
"""A key, what stands there, the rule, and what to write."""


def faults(trainer: dict[str, Any]) -> Iterator[Fault]:
    """Every argument that isn't to be given, or not so."""
    rule = "the run sets this itself, as callbacks, logger, output and batch say"
    yield from ((key, trainer[key], rule, f"leave trainer.{key} out") for key in sorted(TAKEN & trainer.keys()))
    for key, rule in UNFIT.items():
        if asked := trainer.get(key):
            yield key, asked, rule, f"leave trainer.{key} out"
    for key, words in CHOICES.items():
        if (asked := trainer.get(key)) is not None and not isinstance(asked, dict) and asked not in words:
            known = [word for word in words if isinstance(word, str)]
            fix = f"trainer.{key}={nearest(str(asked), known) or known[0]}"
            yield key, asked, f"one of {', '.join(known)}", fix
    for key, example in STEPS:
        steps = trainer.get(key)
        if type(steps) is not int or steps < 1:
            yield key, steps, "a positive number of optimizer steps", f"e.g. trainer.{key}={example}"
    yield from ((key, trainer[key], rule, f"trainer.{key}=1") for key, rule in COUNTED if not _counts(trainer, key))
    yield from _ranges(trainer)


def unheeded(trainer: Mapping[str, Any]) -> Iterator[Fault]:
    """Every argument that a run which is to be trained can't take."""
    for key, (idle, rule) in UNHEEDED.items():
        if key in trainer and not any(type(trainer[key]) is type(value) and trainer[key] == value for value in idle):
            yield key, trainer[key], rule, f"leave trainer.{key} out"
    if trainer.get("deterministic") not in (None, False, True, "warn"):
        yield "deterministic", trainer["deterministic"], "true, false or warn", "trainer.deterministic=true"
    if not isinstance(trainer.get("profiler"), str | Mapping | None):
        rule = "the name of a profiler of Lightning's, or one by _target_"
        yield "profiler", trainer["profiler"], rule, "trainer.profiler=simple"


def _ranges(trainer: dict[str, Any]) -> Iterator[Fault]:
    """Numbers that Lightning takes and that make no sense."""
    limit = trainer.get("gradient_clip_val")
    if isinstance(limit, int | float) and not 0 <= limit < math.inf:  # a negative one turns the gradient round
        rule = "a number above 0 that the gradient is clipped to; 0 or null clips nothing"
        yield "gradient_clip_val", limit, rule, "trainer.gradient_clip_val=1.0"
    least, steps = trainer.get("min_steps"), trainer.get("max_steps")
    if type(least) is int and type(steps) is int and not 0 <= least <= steps:
        rule = f"from 0 to trainer.max_steps={steps}: before so many nothing ends a run early"
        yield "min_steps", least, rule, "leave trainer.min_steps out"
    if (span := trainer.get("max_time")) is not None and not _lasts(span):
        rule = "more than no time, as DD:HH:MM:SS or as {hours: 1, minutes: 30}"
        yield "max_time", span, rule, "leave trainer.max_time out"


def _lasts(span: object) -> bool:
    """Whether a time for training leaves any; what is no time at all, the trainer itself tells."""
    if isinstance(span, str):
        return bool(re.search(r"[^\d:]", span) or re.search(r"[1-9]", span))
    try:
        return not isinstance(span, Mapping) or timedelta(**span) > timedelta(0)
    except (TypeError, OverflowError):
        return True


def _counts(trainer: dict[str, Any], key: str) -> bool:
    """Whether an argument of COUNTED, where it is given, says a number of processes."""
    value = trainer.get(key, 1)
    if isinstance(value, list | tuple):
        return key == "devices" and bool(value) and all(type(number) is int and number >= 0 for number in value)
    if isinstance(value, str) and key == "devices":
        return value in ("auto", "-1") or bool(re.fullmatch(r"[1-9]\d*|\d+(,\d+)*,?", value.replace(" ", "")))
    return type(value) is int and (value >= 1 or (key, value) == ("devices", -1))

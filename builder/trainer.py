"""What a config may ask of Lightning's Trainer, judged before there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
}
"""Arguments that no run goes with, unless they ask for nothing, and why."""

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
    limit, interval = trainer.get("limit_train_batches"), trainer.get("val_check_interval")
    if type(limit) is int and type(interval) is int and limit < interval:
        rule = f"no fewer than trainer.val_check_interval={interval}: after so many steps it validates"
        yield "limit_train_batches", limit, rule, f"trainer.limit_train_batches={interval}"
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


def _counts(trainer: dict[str, Any], key: str) -> bool:
    """Whether an argument of COUNTED, where it is given, says a number of processes."""
    value = trainer.get(key, 1)
    if isinstance(value, list | tuple):
        return key == "devices" and bool(value) and all(type(number) is int and number >= 0 for number in value)
    if isinstance(value, str) and key == "devices":
        return value in ("auto", "-1") or bool(re.fullmatch(r"[1-9]\d*|\d+(,\d+)*,?", value.replace(" ", "")))
    return type(value) is int and (value >= 1 or (key, value) == ("devices", -1))

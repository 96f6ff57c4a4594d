"""What a knob of a random config is drawn from, by its name, and what a config may be spoilt with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from builder import registry

CHOICES: dict[str, Sequence[Any]] = {
    "d_model": (32, 16, 48),
    "n_layers": (2, 1, 3, 4),
    "train_length": (32, 32, 32, 24, 9),
    "deploy_length": (32, 32, 32, 32, 32, 24, 24, 48, 9),
    "vocab_size": (None, None, None, 300, 280),
    "n_heads": (2, 4, 1),
    "n_kv_heads": (1, 2, 4),
    "n_key_heads": (1, 2, 4),
    "d_head": (8, 4, 16),
    "d_key": (8, 4),
    "d_value": (8, 4),
    "d_rope": (4, 8),
    "q_rank": (8, 12),
    "kv_rank": (8, 12),
    "rank": (2, 4),
    "d_ff": (32, 48, 24),
    "d_hidden": (16, 32),
    "d_inner": (32, 64, 16),
    "d_state": (4, 8, 6),
    "d_conv": (2, 4, 1),
    "n_blocks": (1, 2, 4),
    "n_groups": (1, 2),
    "chunk": (2, 4, 16),
    "window": (4, 3, 8, 64),
    "n_experts": (4, 2, 8),
    "top_k": (1, 2),
    "top_groups": (1, 2),
    "length": (None, 64, 48, 16),
    "base_d_model": (16, 8, 32),
    "base_d_head": (None, None, 4, 8),
    "n_buckets": (8, 4, 32),
    "max_distance": (64, 128, 16),
    "theta": (10000.0, 100.0, 2.0),
    "fraction": (1.0, 0.5, 0.25),
    "factor": (2.0, 1.0, 4.0, 1.5),
    "original_length": (16, 24, 8),
    "eps": (1e-5, 1e-6, 1e-3),
    "norm_eps": (1e-5, 1e-6),
    "adamw_eps": (1e-8, 1e-6),
    "std": (0.02, 0.1, 0.3),
    "dt_min": (1e-3, 1e-2),
    "dt_max": (0.1, 1.0),
    "decay_min": (0.9, 0.5),
    "decay_max": (0.999, 0.95),
    "dropout": (0.0, 0.1, 0.5),
    "jitter": (0.0, 0.01, 0.1),
    "lr": (1e-3, 1e-4, 1e-2),
    "embedding_lr": (None, 1e-3),
    "head_lr": (None, 1e-3),
    "adamw_lr": (1e-3, None),
    "warmup_steps": (0, 2, 10),
    "n_symbols": (8, 16, 10),
    "val_rows": (8, 16),
    "n_pairs": (2, 4),
    "min_length": (1, 2),
    "max_length": (None, 3, 5),
    "n_classes": (3, 3, 3, 2, 5),
    "sentinels": (30, 100),
    "val_fraction": (0.2, 0.1, 0.5),
    "sequences": (4, 8, 3, 6),
    "tokens": (None,),
    "micro_batch": (None, 2, 1),
    "topics": (2, 3),
    "seed": (0, 1, 7),
    "sample.seed": (0,),
    "num_beams": (1, 2),
    "prompt": ("0 1 2",),
    "kernel": (*(None,) * 8, *registry.names("kernel")),
    "specials": ((), ("mask",), ("cls", "sep")),
    "bpe.vocab_size": (300, 270),
    "min_frequency": (2, 1),
    "language": ("ru",),
    "balance": ({"aux_loss": 0.01}, {"bias_speed": 0.01}, {"sequence_loss": 0.01, "z_loss": 0.001}, False),
    "compile": (False,),
    "tolerance": (0.5, 0.01),
    "version": (1,),
}
"""What a knob of that name is drawn from, the simplest first; `name.knob` where it means another thing there."""

TOO_SLOW = ("python_docs", "passages")  # half a million characters, tokenised for each config
OWN_SHARDS = ("tokens",)  # written by one tokenizer, which must be the run's
UNSAID = {"compile", "logger", "callbacks", "output", "trainer", "version", "budget"}
"""Sections that stay as the run that all begin with has them, or are drawn by hand."""

SAID = ("balance", "warmup_steps")  # keys that are drawn always: most runs need another value than the usual
TRIES = 8
ODD = (0, -1, 1, 3, 7, 33, 1.5, 1e9, "x", "", True, None, [], {}, ["a"], {"name": "x"})
"""What a leaf may be spoilt with."""

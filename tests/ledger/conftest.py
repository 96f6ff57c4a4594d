"""Architectures to be counted: the one of chapter 3.7, and any other by overriding it."""

import pytest

from builder.spec import ModelSpec

CHAPTER = {
    "d_model": 8,
    "n_layers": 1,
    "vocab_size": 11,
    "train_length": 4,
    "deploy_length": 4,
    "attention": {"name": "gqa", "n_heads": 2, "d_head": 4},
    "ffn": {"name": "glu", "d_ff": 12},
    "norm": {"name": "rmsnorm"},
    "block": {"name": "pre_norm"},
    "position": {"name": "none"},
    "init": {"name": "normal"},
}


@pytest.fixture
def architecture():
    """architecture(key=value, ...): the ModelSpec of chapter 3.7's example, with slots and facts replaced."""
    return lambda **overrides: ModelSpec.model_validate(CHAPTER | overrides)

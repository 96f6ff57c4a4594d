"""Tiny random models of transformers, as the folders that it saves."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports transformers

import json
import logging

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from builder import build, import_hf

COMPUTED_BY = {"falcon": "sdpa"}
"""How their attention is computed, where it isn't "eager": Falcon's eager code adds the biases of ALiBi twice."""
IDS = {"vocab_size": 37, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def made(config, kind=None):
    """A model of transformers, every parameter from N(0, 0.2^2), norms and biases too; buffers from N(0, 0.02^2).

    `kind` is its class, None a language model's; what it has frozen stays.

    A buffer adds to the scores of experts, which are close to each other: a larger one would choose the same for all.
    """
    config._attn_implementation = config._experts_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config) if kind is None else kind(config)
    model.eval()
    generator = torch.Generator().manual_seed(1)
    kept = [buffer for name, buffer in model.named_buffers() if name in model.state_dict()]
    with torch.no_grad():
        for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
            parameter.normal_(0.0, 0.2, generator=generator)
        for buffer in kept:
            buffer.normal_(0.0, 0.02, generator=generator)
    return model


def ids(*shape):
    """Tokens of that shape, always the same."""
    return torch.randint(IDS["vocab_size"], shape, generator=torch.Generator().manual_seed(0))


def ours(folder):
    """The model in a folder, as one of ours."""
    spec, state = import_hf(folder)
    model = build(spec)
    model.load_state_dict(state, strict=True)
    return model.eval()


def theirs(folder):
    """The model in a folder, as transformers loads it."""
    kernel = COMPUTED_BY.get(fields(folder)["model_type"], "eager")
    kind = getattr(transformers, fields(folder)["architectures"][0])
    loaded = kind.from_pretrained(folder, attn_implementation=kernel, experts_implementation="eager")
    return loaded.eval()


def tensors(folder):
    """The tensors of a folder by name."""
    return load_file(folder / "model.safetensors")


def fields(folder):
    """The fields of a folder's config.json."""
    return json.loads((folder / "config.json").read_text())


@pytest.fixture
def change():
    """change(folder, field=value, ...): sets fields of its config.json."""

    def changed(folder, **values):
        (folder / "config.json").write_text(json.dumps(fields(folder) | values))

    return changed


@pytest.fixture
def retensor():
    """retensor(folder, edit): its tensors after `edit(dict)` changed them in place."""

    def changed(folder, edit):
        state = tensors(folder)
        edit(state)
        save_file(
            {name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors", {"format": "pt"}
        )

    return changed


@pytest.fixture
def quietly_loaded(monkeypatch):
    """quietly_loaded(folder): transformers' own model of it, which must load without a warning."""

    def loaded(folder):
        said = []
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: said.append(record.getMessage())
        logger = logging.getLogger("transformers")
        logger.addHandler(handler)
        transformers.utils.logging.warning_once.cache_clear()
        try:
            model = theirs(folder)
        finally:
            logger.removeHandler(handler)
        assert not said
        return model

    return loaded

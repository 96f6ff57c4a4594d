"""The same model in transformers, with the same weights, behind the same calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from builder.errors import ArchlabError
from builder.interop import export_hf
from builder.model.language_model import LanguageModel
from builder.training.objective import Task

from .contender import Contender, Heard

CACHES = ("cache", "past_key_values", "cache_params")
"""What models of transformers call what they remember, in their arguments and in their outputs."""


def export(model: LanguageModel, folder: Path) -> None:
    """Writes the model as transformers reads it; raises ArchlabError when it isn't installed or has no such model."""
    _transformers()
    try:
        export_hf(model, folder)
    except ArchlabError as error:
        raise ArchlabError(f"peers=true: transformers has no model like this one: {error}") from None


class Peer(Contender):
    """What transformers makes of an exported model: its own code, its SDPA attention, its cache."""

    name = "transformers"

    def __init__(self, folder: Path, device: torch.device):
        transformers = _transformers()
        auto: Any = transformers.AutoModelForCausalLM
        self.module = auto.from_pretrained(folder, attn_implementation="sdpa", dtype=torch.float32).to(device)
        self.described = f"{type(self.module).__name__} {transformers.__version__}"
        self._forward: Any = self.module.forward

    def compile(self) -> None:
        self._forward = torch.compile(self.module.forward)

    def train(self, task: Task) -> tuple[Tensor, Any]:
        mask = task.attention_mask
        return self._forward(task.inputs, attention_mask=mask, use_cache=False).logits, 0

    def prefill(self, tokens: Tensor, max_length: int) -> tuple[Tensor, Any]:
        return self.decode(tokens, {})

    def decode(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        output = self.module(ids, **state, use_cache=True, logits_to_keep=1)
        held = next(key for key in CACHES if output.get(key) is not None)
        return output.logits, {held: output[held]}

    def generate(self, tokens: Tensor, new: int, heard: Heard | None = None) -> Tensor:
        knobs: dict[str, Any] = {"do_sample": False, "min_new_tokens": new, "max_new_tokens": new, "pad_token_id": 0}
        knobs |= {} if heard is None else {"streamer": _Streamer(heard)}
        module: Any = self.module
        return module.generate(tokens, attention_mask=torch.ones_like(tokens), **knobs)[:, tokens.shape[1] :]


class _Streamer:
    """Where generate of transformers puts the prompt, and then each column of tokens."""

    def __init__(self, heard: Heard):
        self._heard, self._begun = heard, False

    def put(self, tokens: Tensor) -> None:
        if self._begun:
            self._heard()
        self._begun = True

    def end(self) -> None:
        """Nothing: how many tokens there are is known."""


def _transformers() -> Any:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # what it says of loading is not about the measurement
    try:
        import transformers
    except ImportError:
        raise ArchlabError("peers=true needs transformers, which isn't installed: pip install transformers") from None
    transformers.utils.logging.disable_progress_bar()
    return transformers

"""What a trained model can be asked, by its kind and by what its head gives: each verb shows its answer and returns it.

A verb is a file with two functions. `answer(model, tokenizer, spec, console, labels) -> str` asks the model of
spec.prompt; `labels` are the names of the classes, as far as they are known. `refuse(tokenizer, spec, longest)` raises
ArchlabError where that can't be asked of a model that reads `longest` tokens.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from builder.data.tokenizer import Tokenizer
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec
from builder.spec import ModelSpec

_TOKENS = {"decoder": "go_on", "encoder_decoder": "go_on", "encoder": "fill"}
_OTHERS = {"classes": "classify", "token_classes": "tag", "sentence": "embed"}


def verb_of(spec: ModelSpec) -> str:
    """The verb that a model answers to: go_on, fill, classify, tag or embed."""
    return _OTHERS.get(spec.head.component.gives) or _TOKENS[spec.kind]


def refuse(model: ModelSpec, tokenizer: Tokenizer, spec: SampleSpec) -> None:
    """Raises ArchlabError where a model can't be asked of spec.prompt."""
    _verb(model).refuse(tokenizer, spec, model.deploy_length)


def answer(
    model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console, labels: Sequence[str] = ()
) -> str:
    """What the model says of spec.prompt, shown on the console as it comes, and returned."""
    return _verb(model.spec).answer(model, tokenizer, spec, console, labels)


def _verb(spec: ModelSpec) -> Any:
    return importlib.import_module(f"{__name__}.{verb_of(spec)}")

"""What a trained model can be asked, by its kind and by what its head gives: each verb shows its answer and returns it.

A verb is a file with two functions. `answer(model, tokenizer, spec, console, labels) -> str` asks the model of
spec.prompt; `labels` are the names of the classes, as far as they are known. `refuse(tokenizer, spec, longest)` raises
ArchlabError where that can't be asked of a model that reads `longest` tokens. Where the prompt is to be put into a
chat template the tokenizer has one beside it, and spec.messages is empty elsewhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from builder.data.templated import with_chat
from builder.data.tokenizer import Tokenizer
from builder.errors import ConfigError, Problem, shown
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
    _verb(model).refuse(_asked(model, tokenizer, spec), spec, model.deploy_length)


def answer(
    model: LanguageModel,
    tokenizer: Tokenizer,
    spec: SampleSpec,
    console: Console,
    labels: Sequence[str] = (),
    **how: Any,
) -> str:
    """What the model says of spec.prompt, shown on the console as it comes, and returned; `how` its tokens are
    computed, of one that writes token by token, is told in the arguments of `sample`."""
    return _verb(model.spec).answer(model, _asked(model.spec, tokenizer, spec), spec, console, labels, **how)


def refuse_unread(model: ModelSpec, tokenizer: Tokenizer, **knobs: Any) -> None:
    """Raises ConfigError for the knobs `compile`, `draft` and `raw` where they are set and nothing reads them."""
    silent = "nothing reads it: this model doesn't write, a token at a time"
    bare = "nothing reads it: without a chat template the prompt is asked as it stands"
    judged = (
        ("compile", _writes(model), silent, "compile=false"),
        ("draft", _writes(model), silent, "draft=null"),
        ("raw", _templated(model, tokenizer), bare, "raw=false"),
    )
    idle = [Problem(key, shown(knobs[key]), rule, fix) for key, read, rule, fix in judged if knobs[key] and not read]
    if idle:
        raise ConfigError(idle)


def _writes(model: ModelSpec) -> bool:
    return verb_of(model) == "go_on"


def _templated(model: ModelSpec, tokenizer: Tokenizer) -> bool:
    """Whether a prompt is put into a chat template: a decoder's, whose tokenizer has one."""
    return _writes(model) and model.kind == "decoder" and tokenizer.chat is not None


def _asked(model: ModelSpec, tokenizer: Tokenizer, spec: SampleSpec) -> Tokenizer:
    """The tokenizer as a verb is to have it; raises ConfigError for messages that no template is there for."""
    if _templated(model, tokenizer):
        return tokenizer
    if spec.messages:
        rule = "nothing reads them: the prompt is asked as it stands, without a chat template"
        raise ConfigError([Problem("messages", f"{len(spec.messages)} of them", rule, "messages=[]")])
    return with_chat(tokenizer, None)


def _verb(spec: ModelSpec) -> Any:
    return importlib.import_module(f"{__name__}.{verb_of(spec)}")

"""A decoder goes on with the prompt; an encoder-decoder reads it as its source and writes the target."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from builder.data.tokenizer import Tokenizer
from builder.experiments.sample import Proposals, request, sample
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec


def refuse(tokenizer: Tokenizer, spec: SampleSpec, longest: int) -> None:
    """Raises GenerationError where prompt and answer have no room, and for knobs that don't go together."""
    request(tokenizer, spec, longest)


def answer(
    model: LanguageModel,
    tokenizer: Tokenizer,
    spec: SampleSpec,
    console: Console,
    labels: Sequence[str],
    proposals: Proposals | None = None,
    compile: bool = False,
) -> str:
    """The prompt and what follows, or the source and the target."""
    return sample(model, tokenizer, spec, console, proposals, compile)

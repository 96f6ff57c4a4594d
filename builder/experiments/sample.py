"""Text from a model, shown as it comes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from rich.console import Console
from rich.segment import Segment, Segments
from torch import Tensor

from builder.data.templated import Question, question
from builder.data.tokenizer import Tokenizer
from builder.generation import generate
from builder.generation.beams import refuse_beside
from builder.generation.request import check_length
from builder.generation.sampling import Sampler
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec

_HIDDEN = {code: "\ufffd" for code in (*range(9), *range(11, 32), *range(127, 160))}
"""Control characters but tab and newline: what an untrained model writes must not steer the terminal."""


@dataclass(frozen=True)
class Proposals:
    """Who proposes tokens, so many at a time, None as in `generate`; who hears how many of them were used."""

    model: LanguageModel
    count: int | None
    heard: Console


def sample(
    model: LanguageModel,
    tokenizer: Tokenizer,
    spec: SampleSpec,
    console: Console,
    proposals: Proposals | None = None,
    compile: bool = False,
) -> str:
    """Prints the prompt and what the model makes of it, character by character, and returns both.

    A decoder goes on with the prompt, and an empty one starts from the end-of-document token; where the tokenizer has a
    chat template it answers the prompt, on a line of its own. So does an encoder-decoder, which reads the prompt as its
    source. Raises ArchlabError past model.deploy_length.
    """
    asked, count = request(tokenizer, spec, model.deploy_length)
    begun = {"tokens": torch.tensor([asked.ids])}
    if model.encoder is not None:
        count = spec.max_new_tokens or model.deploy_length - 1
        begun = {"tokens": torch.tensor([[tokenizer.start]]), "source": torch.tensor([tokenizer.whole(spec.prompt)])}
    answers = model.encoder is not None or tokenizer.chat is not None
    stream, parts = tokenizer.stream(), []

    def show(text: str, style: str = "") -> None:
        parts.append(text)
        shown = text.translate(_HIDDEN) if console.is_terminal else text
        console.print(Segments([Segment(shown, console.get_style(style))]), crop=False)  # rich expands tabs elsewhere

    def on_token(step: int, new: Tensor) -> None:
        show(stream.push(int(new[0])))

    show(spec.prompt + "\n" * answers, style="bold")
    drafted = {} if proposals is None else {"draft": proposals.model, "draft_tokens": proposals.count}
    result = generate(
        model,
        **begun,
        max_new_tokens=count,
        eos=asked.ends,
        pad=tokenizer.pad,
        **_choice(spec),
        num_beams=spec.num_beams,
        length_penalty=spec.length_penalty,
        seed=spec.seed,
        on_token=on_token,
        compile=compile,
        **drafted,
    )
    show(stream.flush() + "\n")
    if proposals is not None and result.accepted is not None:
        proposals.heard.print(f"draft: {result.accepted:.0%} of its tokens were used", highlight=False)
    return "".join(parts)


def request(tokenizer: Tokenizer, spec: SampleSpec, deploy_length: int) -> tuple[Question, int]:
    """What is asked, and how many tokens are to follow; raises GenerationError for what `generate` refuses, and
    ConfigError for messages that can't be asked."""
    refuse_beside(spec.num_beams, _choice(spec))
    asked = question(tokenizer, spec.prompt, spec.before)
    count = spec.max_new_tokens or max(deploy_length - len(asked.ids), 1)
    check_length(len(asked.ids), count, deploy_length)
    return asked, count


def _choice(spec: SampleSpec) -> dict[str, Any]:
    """How the next token is chosen: the knobs of a Sampler."""
    return {knob.name: getattr(spec, knob.name) for knob in fields(Sampler)}

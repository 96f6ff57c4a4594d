"""Text from a model, shown as it comes."""

from __future__ import annotations

import torch
from rich.console import Console
from torch import Tensor

from builder.data.tokenizer import Tokenizer
from builder.generation import generate
from builder.model.language_model import LanguageModel
from builder.spec import SampleSpec


def sample(model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console) -> str:
    """Prints the prompt and what the model makes of it, character by character, and returns both.

    An empty prompt starts from the end-of-document token. Raises ArchlabError past model.deploy_length.
    """
    ids = tokenizer.encode(spec.prompt) or [tokenizer.eos]
    room = max(model.deploy_length - len(ids), 1)
    stream, parts = tokenizer.stream(), [spec.prompt]

    def show(text: str) -> None:
        parts.append(text)
        console.out(text, end="", highlight=False)

    def on_token(step: int, new: Tensor) -> None:
        show(stream.push(int(new[0])))

    console.out(spec.prompt, end="", highlight=False, style="bold")
    generate(
        model,
        torch.tensor([ids]),
        max_new_tokens=spec.max_new_tokens or room,
        eos=tokenizer.eos,
        pad=tokenizer.pad,
        temperature=spec.temperature,
        top_k=spec.top_k,
        top_p=spec.top_p,
        min_p=spec.min_p,
        repetition_penalty=spec.repetition_penalty,
        seed=spec.seed,
        on_token=on_token,
    )
    show(stream.flush() + "\n")
    return "".join(parts)

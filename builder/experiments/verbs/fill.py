"""An encoder says what stands behind each mask of the prompt."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.console import Console

from builder.data.tokenizer import Tokenizer
from builder.errors import ArchlabError
from builder.model.language_model import LanguageModel
from builder.sections import SampleSpec

from .asked import fits, read

MASK = "<mask>"
"""How a mask is written in a prompt; a prompt without one gets one at its end."""

_LIKELIEST = 5


def refuse(tokenizer: Tokenizer, spec: SampleSpec, longest: int) -> None:
    """Raises ArchlabError for a text that is too long, and where the tokenizer has no mask."""
    fits(masked_ids(tokenizer, spec.prompt), longest)


@torch.no_grad()
def answer(
    model: LanguageModel, tokenizer: Tokenizer, spec: SampleSpec, console: Console, labels: Sequence[str]
) -> str:
    """For each mask the likeliest tokens and how likely they are; then the prompt with the likeliest in place."""
    ids = masked_ids(tokenizer, spec.prompt)
    logits = read(model, ids)[0, :, : model.n_tokens].float()  # (T, V)
    logits[:, list(tokenizer.specials.values())] = -torch.inf  # which are never hidden, and so never learnt
    places = [place for place, id in enumerate(ids) if id == tokenizer.named["mask"]]
    lines = [] if MASK in spec.prompt else [f"no {MASK} in the prompt: one was put behind it"]
    for number, place in enumerate(places):
        best = logits[place].softmax(-1).topk(min(_LIKELIEST, logits.shape[-1]))
        told = (
            f"{_shown(tokenizer, int(id))} {share:.1%}" for share, id in zip(best.values, best.indices, strict=True)
        )
        lines.append(f"mask {number + 1}: {', '.join(told)}")
        ids[place] = int(best.indices[0])
    lines.append(tokenizer.decode(ids))
    for line in lines:
        console.print(line, highlight=False, markup=False)
    return "\n".join(lines) + "\n"


def masked_ids(tokenizer: Tokenizer, prompt: str) -> list[int]:
    """A prompt with its masks as ids."""
    if "mask" not in tokenizer.named:
        raise ArchlabError("prompt: the tokenizer has no mask: the objective hides nothing; objective=masked does")
    first, *rest = (prompt if MASK in prompt else prompt + MASK).split(MASK)
    masked = [id for piece in rest for id in (tokenizer.named["mask"], *tokenizer.encode(piece))]
    return [*tokenizer.begun([*tokenizer.encode(first), *masked]), tokenizer.eos]


def _shown(tokenizer: Tokenizer, id: int) -> str:
    special = {number: name for name, number in tokenizer.specials.items()}
    return special.get(id) or repr(tokenizer.decode([id]))

"""What each head of each layer looks at in one text: the attention weights of the reference kernel, and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import torch
from torch import Tensor

from builder.components.attention import Attention
from builder.components.kernel import Case, Scoring
from builder.components.kernel.eager import Eager, weigh
from builder.data.tokenizer import Tokenizer
from builder.generation import generate
from builder.model.language_model import LanguageModel

from .load import some_of

TOKENS = 32
"""Tokens of a text, at most: more would not be read on an axis."""

SHOWN_HEADS = 16
"""Heads that are drawn of a layer: the first ones, so that heads of one KV head stand side by side."""

_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
_DPI = 110
_ACROSS = 4  # heads in a row of the picture

# Inches.
_MAP = (1.6, 3.4)  # the side of a map, at least and at most
_CELL = 0.11  # of a map, where there is room
_GAP = 0.3  # between two maps,
_EDGE = 0.6  # beside and below all of them, for the tokens,
_TITLE, _BAR = 0.35, 0.6  # above them, and on the right


@dataclass
class _Watching:
    """The reference kernel in the place of the fastest one, that keeps the weights it computes."""

    kept: list[Tensor] = field(default_factory=list)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        self.kept.append(weigh(q, k, scoring).float().cpu())
        return Eager.attend(q, k, v, scoring)

    def refuses(self, case: Case) -> str | None:
        return None

    def speed(self, case: Case) -> int:
        return 0


def maps(model: LanguageModel, tokens: Tensor) -> dict[int, Tensor]:
    """The attention weights (H, T, T) float32 of each layer that has any, by its number; tokens (1, T) int64.

    Row t is what token t looks at: it sums to 1, less what a sink takes. The model is left as it was.
    """
    with _watched(model) as watching, torch.no_grad():
        model(tokens, logits=False)
    return {layer: watch.kept[0][0] for layer, watch in watching.items() if watch.kept}


def text(model: LanguageModel, tokenizer: Tokenizer, prompt: str) -> list[int]:
    """The ids of a prompt and of what the model goes on with, greedily: TOKENS together, or as many as fit."""
    ids = (tokenizer.encode(prompt) or [tokenizer.eos])[: min(TOKENS, model.deploy_length)]
    more = min(TOKENS, model.deploy_length) - len(ids)
    if more < 1:
        return ids
    device = model.embedding.weight.device
    made = generate(
        model, torch.tensor([ids], device=device), max_new_tokens=more, eos=tokenizer.eos, pad=tokenizer.pad
    )
    return [*ids, *made.tokens[0, : int(made.lengths[0])].tolist()]


def labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as it is shown beside an axis: spaces and line ends as signs, special ids by their names."""
    special = {id: f"<{name}>" for name, id in tokenizer.specials.items()}
    return [special.get(id) or _shown(tokenizer.decode([id])) for id in ids]


def shown_layers(layers: Sequence[int]) -> list[int]:
    """The layers that are drawn: all, or some of a deep model, its first and its last among them."""
    return some_of(layers)


def draw(weights: Tensor, tokens: Sequence[str], title: str, file: IO[bytes]) -> None:
    """Writes the maps of one layer's heads, (H, T, T), to `file` as a PNG: queries down, keys across, 0 is white."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heads = min(len(weights), SHOWN_HEADS)
    across = min(heads, _ACROSS)
    down = math.ceil(heads / across)
    side = min(max(_CELL * len(tokens), _MAP[0]), _MAP[1])
    pitch = side + _GAP
    width, height = _EDGE + across * pitch + _BAR, _TITLE + down * pitch + _EDGE
    figure = Figure((width, height), dpi=_DPI)
    canvas = FigureCanvasAgg(figure)
    told = f"; the first {heads} of {len(weights)} heads" if heads < len(weights) else ""
    title = f"{title}: queries down, keys across{told}"
    figure.text(0.1 / width, 1 - 0.25 / height, title, fontsize=9, parse_math=False)

    def place(row: int, column: int, wide: float = side) -> Any:
        left, bottom = _EDGE + column * pitch, height - _TITLE - (row + 1) * pitch
        return figure.add_axes((left / width, bottom / height, wide / width, side / height))

    image: Any = None
    for head in range(heads):
        row, column = divmod(head, across)
        axes = place(row, column)
        image = axes.imshow(weights[head].numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="none")
        axes.set_title(f"head {head}", fontsize=8, pad=3)
        lowest = head + across >= heads
        _label(axes.xaxis, tokens if lowest else [], 72 * side / len(tokens), turned=90)
        _label(axes.yaxis, tokens if column == 0 else [], 72 * side / len(tokens), turned=0)
    figure.colorbar(image, cax=place(0, across, wide=0.12)).ax.tick_params(labelsize=7)
    canvas.print_png(file)


def _label(axis: Any, tokens: Sequence[str], points: float, turned: int) -> None:
    """Writes every token, or every so many, on an axis; a cell has `points` points."""
    size = min(max(points - 1, 4.5), 8)
    places = range(0, len(tokens), math.ceil((size + 0.5) / points))
    axis.set_ticks(list(places), [tokens[place] for place in places], fontsize=size, rotation=turned)
    axis.set_tick_params(length=0, pad=2)
    for label in axis.get_ticklabels():
        label.set_parse_math(False)  # a dollar sign is a token


def _shown(piece: str) -> str:
    signs = "".join(_SIGNS.get(sign, sign if sign.isprintable() else "�") for sign in piece)
    return signs if len(signs) <= 8 else f"{signs[:7]}…"


@contextmanager
def _watched(model: LanguageModel) -> Iterator[dict[int, _Watching]]:
    """The kernel of each layer's attention replaced while the block lasts."""
    found = {
        layer: part
        for layer, block in enumerate(model.layers)
        for part in block.modules()
        if isinstance(part, Attention)
    }
    before = {layer: part.kernels for layer, part in found.items()}
    watching = {layer: _Watching() for layer in found}
    try:
        for layer, part in found.items():
            part.kernels = (watching[layer],)  # pyright: ignore[reportAttributeAccessIssue]
        yield watching
    finally:
        for layer, part in found.items():
            part.kernels = before[layer]

"""What each head of each layer looks at in one text: the attention weights of the reference kernel, and pictures."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor

from builder.data.chat import Messages
from builder.data.templated import question, with_chat
from builder.data.tokenizer import Tokenizer
from builder.generation import generate
from builder.model.language_model import LanguageModel
from builder.whole import whole

from .attention_capture import capture_attention
from .load import some_of
from .verbs.fill import MASK, masked_ids

TOKENS = 32
"""Tokens of a text, at most: more would not be read on an axis."""

SHOWN_HEADS = 16
"""Heads that are drawn of a layer: the first ones, so that heads of one KV head stand side by side."""

_NAMES = {"layer": "Attention of layer", "cross": "Reading of the source, layer", "encoder": "Encoder layer"}
_SIGNS = {" ": "␣", "\n": "↵", "\t": "⇥"}
_DPI = 110
_ACROSS = 4  # heads in a row of the picture

# Inches.
_MAP = (1.6, 3.4)  # the side of a map, at least and at most
_CELL = 0.11  # of a map, where there is room
_GAP = 0.3  # between two maps,
_EDGE = 0.6  # beside and below all of them, for the tokens,
_TITLE, _BAR = 0.35, 0.6  # above them, and on the right


def maps(model: LanguageModel, tokens: Tensor, source: Tensor | None = None) -> dict[str, Tensor]:
    """The attention weights (H, T, S) float32 of each attention, by the name of its place: `layer-3`, `cross-3` of a
    source, `encoder-3`; tokens (1, T) and source (1, S) int64.

    Row t is what token t looks at: it sums to 1, less what a sink takes. The model is left as it was.
    """
    with capture_attention(model) as seen, torch.no_grad():
        model(tokens, **({} if source is None else {"source": source}), logits=False)
    return {place_of(name): seen[name][0] for name in seen}


def place_of(name: str) -> str:
    """How a picture is called of the attention at `layers.3.mixer`, `layers.3.cross` or `encoder.layers.3.mixer`."""
    steps = name.split(".")
    number = steps[steps.index("layers") + 1]
    part = "encoder" if steps[0] == "encoder" else "cross" if "cross" in steps else "layer"
    return f"{part}-{number}"


def text(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, before: Messages = ()
) -> tuple[list[int], list[int] | None]:
    """What is looked at: the ids of a prompt, as a decoder is asked it, and of what it greedily goes on with, TOKENS
    together, or as many as fit; of an encoder the prompt alone; of an encoder-decoder what it writes, and the prompt as
    its source."""
    most = min(TOKENS, model.deploy_length)
    told = question(tokenizer if model.spec.kind == "decoder" else with_chat(tokenizer, None), prompt, before)
    asked = told.ids
    if not model.spec.causal and MASK in prompt:
        asked = masked_ids(tokenizer, prompt)
    two = model.encoder is not None
    source = [*asked[: most - 1], tokenizer.eos] if two else None
    ids = [tokenizer.start] if two else asked[:most]
    more = most - len(ids)
    if more < 1 or not model.spec.causal or model.head.gives != "tokens":
        return ids, source
    device = model.embedding.weight.device
    made = generate(
        model,
        torch.tensor([ids], device=device),
        max_new_tokens=more,
        eos=told.ends,
        pad=tokenizer.pad,
        source=None if source is None else torch.tensor([source], device=device),
    )
    return [*ids, *made.tokens[0, : int(made.lengths[0])].tolist()], source


def write(
    model: LanguageModel, tokenizer: Tokenizer, prompt: str, folder: Path, title: str, before: Messages = ()
) -> dict[str, Path]:
    """Draws what each attention looks at in a prompt, with the messages `before` it in a chat, as folder/<place>.png;
    returns the pictures by place."""
    ids, source = text(model, tokenizer, prompt, before)
    device = model.embedding.weight.device
    given = [None if some is None else torch.tensor([some], device=device) for some in (ids, source)]
    weights = maps(model, given[0], given[1])  # type: ignore[arg-type]
    rows = {"layer": ids, "cross": ids, "encoder": source}
    across = {"layer": ids, "cross": source, "encoder": source}
    pictures = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")  # a font that lacks a sign draws a box
        for place in shown(list(weights)):
            part, _, number = place.rpartition("-")
            pictures[place] = folder / f"{place}.png"
            queries, keys = (labels(tokenizer, side[part] or ()) for side in (rows, across))
            with whole(pictures[place], "wb") as file:
                draw(weights[place], queries, f"{_NAMES[part]} {number}{title}", file, keys)
    return pictures


def labels(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Each token as it is shown beside an axis: spaces and line ends as signs, special ids by their names."""
    special = {id: name if name[0] in "<[" else f"<{name}>" for name, id in tokenizer.specials.items()}
    return [special.get(id) or _shown(tokenizer.decode([id])) for id in ids]


def shown(places: Sequence[str]) -> list[str]:
    """The places that are drawn: of each part all layers, or some of a deep model, first and last among them."""
    numbered = [(part, int(number)) for part, _, number in (place.rpartition("-") for place in places)]
    parts = dict.fromkeys(part for part, _ in numbered)
    return [f"{part}-{n}" for part in parts for n in some_of(number for other, number in numbered if other == part)]


def draw(
    weights: Tensor, tokens: Sequence[str], title: str, file: IO[bytes], keys: Sequence[str] | None = None
) -> None:
    """Writes the maps of one layer's heads, (H, T, S), to `file` as a PNG: queries down, keys across, 0 is white.

    `tokens` are those of the queries, `keys` those that are looked at; None: the same.
    """
    keys = tokens if keys is None else keys
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heads = min(len(weights), SHOWN_HEADS)
    across = min(heads, _ACROSS)
    down = math.ceil(heads / across)
    side = min(max(_CELL * max(len(tokens), len(keys)), _MAP[0]), _MAP[1])
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
        image = axes.imshow(weights[head].numpy(), cmap="Blues", vmin=0, vmax=1, interpolation="none", aspect="auto")
        axes.set_title(f"head {head}", fontsize=8, pad=3)
        lowest = head + across >= heads
        _label(axes.xaxis, keys if lowest else [], 72 * side / len(keys), turned=90)
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

"""How many parameters each part of a model has."""

from __future__ import annotations

from collections import Counter

from builder.components.ffn import FFN
from builder.model.language_model import LanguageModel


def by_component(model: LanguageModel) -> dict[str, int]:
    """Parameters by component: the slots of the layers by their names, all norms together; a tied table once."""
    towers = {
        name: {(layer.index, part.kind): part.slot for layer in spec.layers for part in layer.parts}
        for name, spec in model.spec.towers.items()
    }
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():  # names a shared parameter once
        path = name.split(".")
        tower = path[0] if path[0] in towers else ""
        part = _component(path[1:] if tower else path, towers[tower])
        counts[f"{tower} {part}".strip()] += parameter.numel()
    return dict(counts)


def active(model: LanguageModel) -> int:
    """Parameters that one token passes through: all, less those of the experts that it doesn't go to."""
    idle = sum(part.idle_parameters() for part in model.modules() if isinstance(part, FFN))
    return sum(parameter.numel() for parameter in model.parameters()) - idle


def dispatched(model: LanguageModel) -> int:
    """Numbers of one token that go to experts in a forward pass, over all layers."""
    return sum(part.dispatched() for part in model.modules() if isinstance(part, FFN))


def _component(path: list[str], slots: dict[tuple[int, str], str]) -> str:
    if path[0] != "layers":
        return "norms" if path[0].endswith("_norm") else path[0]
    beside = "residual" if path[2].endswith("residual") else "norms"  # what a block holds beside its parts
    return slots.get((int(path[1]), path[2]), beside)

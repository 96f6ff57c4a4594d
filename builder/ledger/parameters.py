"""How many parameters each part of a model has."""

from __future__ import annotations

from collections import Counter

from builder.components.ffn import FFN
from builder.model.language_model import LanguageModel

from .sample import Times


def by_component(model: LanguageModel, times: Times) -> dict[str, int]:
    """Parameters by component: the slots of the layers by their names, all norms together; a tied table once."""
    towers = {
        name: {(layer.index, part.kind): part.slot for layer in spec.layers for part in layer.parts}
        for name, spec in model.spec.towers.items()
    }
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():  # names a shared parameter once
        tower, path = _place(name, times)
        counts[f"{tower} {_component(path, towers[tower])}".strip()] += parameter.numel() * _of(tower, path, times)
    return dict(counts)


def active(model: LanguageModel, times: Times) -> int:
    """Parameters that one token passes through: all, less those of the experts that it doesn't go to."""
    idle = sum(of * part.idle_parameters() for of, part in _ffns(model, times))
    return sum(by_component(model, times).values()) - idle


def dispatched(model: LanguageModel, times: Times) -> int:
    """Numbers of one token that go to experts in a forward pass, over all layers, one that is shared at each place."""
    return sum(
        of * part.dispatched()
        for name, tower in model.towers.items()
        for of, layer in zip(times[name], tower.layers, strict=True)
        for part in layer.modules()
        if isinstance(part, FFN)
    )


def _ffns(model: LanguageModel, times: Times) -> list[tuple[int, FFN]]:
    """Every feed-forward part, a shared one once, and for how many such parts it stands."""
    parts = [(name, part) for name, part in model.named_modules() if isinstance(part, FFN)]
    return [(_of(*_place(name, times), times), part) for name, part in parts]


def _place(name: str, times: Times) -> tuple[str, list[str]]:
    """The tower that a name leads into, and the way from there."""
    tower, _, rest = name.partition(".")
    return (tower, rest.split(".")) if tower in times else ("", name.split("."))


def _of(tower: str, path: list[str], times: Times) -> int:
    """For how many like it what stands there stands."""
    return times[tower][int(path[1])] if path[0] == "layers" else 1


def _component(path: list[str], slots: dict[tuple[int, str], str]) -> str:
    if path[0] != "layers":
        return "norms" if path[0].endswith("_norm") else path[0]
    beside = "residual" if path[2].endswith("residual") else "norms"  # what a block holds beside its parts
    return slots.get((int(path[1]), path[2]), beside)

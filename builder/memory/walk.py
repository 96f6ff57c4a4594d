"""A deep model's passes from those of a shallow one: each layer adds what one of its kind was seen to add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from builder.spec import ModelSpec

from .bytes import Bytes
from .step import FIRST
from .watch import Stretch

_APART = 3
"""Layers of a kind that may differ: the first, which makes what all share, the last, and one between them."""

_WHOLE = 12
"""Up to so many layers an optimizer is played with all of them: one that works on several at once isn't linear."""


class Walk:
    """Through all layers of a model, each at the place of one of the `shallow` model.

    Forward, a layer leaves behind what it keeps for the backward pass; backward, it lets go of that and leaves
    gradients. Both are the same for all layers of a kind but the first and the last one.
    """

    def __init__(self, spec: ModelSpec):
        self._spec = spec
        numbers = {kind: [layer.index for layer in alike] for kind, alike in spec.kinds.items()}
        deep = _plain(spec) and any(len(alike) > _APART for alike in numbers.values())
        rounds = [[kind for kind, alike in numbers.items() if len(alike) > told] for told in (0, 2, 1)]
        pattern = tuple(kind for each in rounds for kind in each) if deep else tuple(map(str, spec.layers))
        self.shallow = _of(pattern, spec)
        self._places = list(range(len(pattern)))
        if deep:
            at = {kind: [place for place, other in enumerate(pattern) if other == kind] for kind in numbers}
            self._places = [self._place(at[str(layer)], numbers[str(layer)], layer.index) for layer in spec.layers]

    @staticmethod
    def _place(places: Sequence[int], alike: Sequence[int], index: int) -> int:
        """Where the layer `index`, one of `alike`, has its like among `places`."""
        if index == alike[0]:
            return places[0]
        return places[-1] if index == alike[-1] else places[1]

    def depths(self) -> Iterator[tuple[ModelSpec, int]]:
        """The models from which follows what is linear in the layers: a shallow one, and then for each kind of which
        there are more one with a layer more, and how many more there are."""
        if self._spec.n_layers <= _WHOLE or not _plain(self._spec):
            yield self._spec, 0
            return
        yield self.shallow, 0
        for kind, alike in self._spec.kinds.items():
            if missing := len(alike) - self.shallow.pattern.count(kind):
                yield _of((*self.shallow.pattern, kind), self._spec), missing

    def through(self, stretches: Sequence[Stretch], held: Bytes) -> list[Stretch]:
        """The stretches of the shallow model's pass as the deep one has them, in order, where it begins with `held`."""
        walked = []
        for name, stretch in self._order({stretch.name: stretch for stretch in stretches}):
            walked.append(Stretch(name, held, held + stretch.rise, held + stretch.change))
            held += stretch.change
        return walked

    def _order(self, told: Mapping[str, Stretch]) -> Iterator[tuple[str, Stretch]]:
        layers = list(enumerate(self._places))
        yield from ((name, told[name]) for name in ("preparation", FIRST) if name in told)
        yield from ((f"forward of layer {index}", told[f"forward of layer {place}"]) for index, place in layers)
        yield from ((name, told[name]) for name in ("logits and loss", "backward of the loss"))
        back = reversed(layers)
        yield from ((f"backward of layer {index}", told[f"backward of layer {place}"]) for index, place in back)
        yield "backward of the embedding", told["backward of the embedding"]


def _plain(spec: ModelSpec) -> bool:
    """Whether layers are all that there is, each with weights of its own; any other model is played through whole."""
    return spec.encoder is None and not spec.shared


def _of(pattern: tuple[str, ...], spec: ModelSpec) -> ModelSpec:
    """The model with these layers."""
    return spec.model_copy(update={"n_layers": len(pattern), "pattern": pattern})

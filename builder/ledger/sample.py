"""A model of few layers that tells what one of many costs: of each kind it has the first, the second and the last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import PrivateAttr

from builder.component import Site
from builder.spec import ModelSpec

SECOND, LAST = 1, -1
"""Which layer of a kind may stand for those that a sample hasn't."""

Times = Mapping[str, Sequence[int]]
"""For how many layers of a model each one stands, by tower."""


class Sample(ModelSpec):
    """Some layers of a model, each at the site that it has there: it knows its number, and how many there are."""

    _whole: ModelSpec = PrivateAttr()
    _numbers: tuple[int, ...] = PrivateAttr()

    @classmethod
    def of(cls, spec: ModelSpec) -> Sample:
        """The sample of a model, or of one tower."""
        numbers, layers = tuple(_chosen(spec)), spec.layers
        own = {"n_layers": len(numbers), "pattern": tuple(str(layers[number]) for number in numbers)}
        made = cls.model_construct(**(dict(spec) | own))
        made._whole, made._numbers = spec, numbers
        return made

    def site(self, layer: int) -> Site:
        """Where that layer stands in the model."""
        return self._whole.site(self._numbers[layer])

    @property
    def source(self) -> ModelSpec | None:
        """The sample of what the model reads."""
        source = self._whole.source
        return None if source is None else Sample.of(source)

    def times(self, of_many: int) -> Times:
        """For how many layers each one stands, where the `SECOND` or the `LAST` of a kind stands for the others."""
        return {name: list(_chosen(tower, of_many).values()) for name, tower in self._whole.towers.items()}


def every(spec: ModelSpec) -> Times:
    """The same of the model itself: each of its layers stands for one."""
    return {name: [1] * tower.n_layers for name, tower in spec.towers.items()}


def _chosen(spec: ModelSpec, of_many: int = SECOND) -> dict[int, int]:
    """The layers that a sample of a tower has, and for how many each one stands."""
    chosen: dict[int, int] = {}
    for layers in spec.kinds.values():
        alike = [layer.index for layer in layers]
        few = dict.fromkeys((alike[0], *alike[1:2], alike[-1]), 1)
        few[alike[min(of_many, len(alike) - 1)]] += len(alike) - len(few)
        chosen |= few
    return dict(sorted(chosen.items()))

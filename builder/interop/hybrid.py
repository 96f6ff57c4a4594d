"""Families in which some layers have an attention and the others a mixer that carries a state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from .facts import Facts
from .family import Family
from .hf_config import HFConfig
from .windows import tile


class Hybrid(Family):
    """A layer with an attention has our slot `attention`, another one `ssm`; a slot that no layer has is left out.

    Without any layer of the other kind a model is written as another family. With `Mixture`, this one stands behind it.
    """

    @abstractmethod
    def attends(self, config: HFConfig, n_layers: int) -> Sequence[bool]:
        """Whether each layer has an attention."""

    def read(self, config: HFConfig) -> dict[str, Any]:
        section = super().read(config)
        mixers = ["attention" if attends else "ssm" for attends in self.attends(config, section["n_layers"])]
        section["pattern"] = tile([f"{mixer}+ffn" for mixer in mixers])
        return {slot: value for slot, value in section.items() if slot not in {"attention", "ssm"} - set(mixers)}

    def write(self, facts: Facts) -> dict[str, Any]:
        facts["ssm"]  # a model without is another family's: KeyError
        return super().write(facts)


def attending(facts: Facts) -> list[bool]:
    """Whether each layer has an attention."""
    return [name is not None for name in facts.each("attention.name")]


def round_of(kinds: Sequence[bool]) -> tuple[int, int] | None:
    """(period, offset), the least ones, with which layer i is of the kind where i % period == offset; None: there are
    none. Where no layer is, a period longer than the model."""
    for period in range(1, len(kinds) + 2):
        for offset in range(period):
            if all(kind == (layer % period == offset) for layer, kind in enumerate(kinds)):
                return period, offset
    return None

"""How evenly tokens went to experts: what was counted of a layer as a few numbers, and the numbers of many layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from .metrics import finite

SHOWN_LAYERS = 16
"""Layers that are logged and listed one by one: with those over all layers, at most 85 numbers however deep a model."""

FIGURES = ("max_over_mean", "entropy", "dropped", "overflow", "dead")
"""What is said of a layer, under these names in metrics and summaries."""


@dataclass(frozen=True)
class Load:
    """The load of one layer's experts; where nothing at all was routed, every figure but `dead` is no number.

    fractions   (X,) float64, the share of all choices that fell on each expert
    overflow    the share of choices that found their expert full
    dropped     the share of choices that found no expert
    """

    fractions: Tensor
    overflow: float
    dropped: float

    @classmethod
    def of(cls, tally: Tensor) -> Load:
        """From what a layer counted, (X + 2,) as in `Aux.tallies`."""
        counts = tally.detach().double().cpu()
        shares = counts / counts[:-2].sum()
        return cls(shares[:-2], shares[-2].item(), shares[-1].item())

    @property
    def ratios(self) -> Tensor:
        """(X,) the load of each expert over the mean: 1 when even."""
        return self.fractions * len(self.fractions)

    @property
    def max_over_mean(self) -> float:
        """The load of the busiest expert over the mean: 1 when even, X at worst."""
        return self.ratios.max().item()

    @property
    def entropy(self) -> float:
        """- sum_e f_e log f_e / log X: 1 when even, 0 when one expert gets everything."""
        if len(self.fractions) == 1:
            return 1.0
        return torch.special.entr(self.fractions).sum().item() / math.log(len(self.fractions))

    @property
    def dead(self) -> int:
        """How many experts nobody chose."""
        return int((self.fractions == 0).sum())

    @property
    def figures(self) -> dict[str, float]:
        """What is said of this layer, by the names in FIGURES."""
        return {name: getattr(self, name) for name in FIGURES}


def over_all(loads: Iterable[Load]) -> dict[str, float]:
    """The figures over layers: the worst ratio, the lowest entropy, mean shares, all dead experts."""
    ratios, entropies, dropped, overflow, dead = zip(*(load.figures.values() for load in loads), strict=True)
    return {
        "max_over_mean": torch.tensor(ratios, dtype=torch.float64)
        .max()
        .item(),  # of which one that is no number is the greatest,
        "entropy": torch.tensor(entropies, dtype=torch.float64).min().item(),  # and here the least
        "dropped": fmean(dropped),
        "overflow": fmean(overflow),
        "dead": sum(dead),
    }


def some_of(layers: Iterable[int]) -> list[int]:
    """The layers that are shown one by one: all, or as many as SHOWN_LAYERS, the first and the last among them."""
    every = sorted(layers)
    if len(every) <= SHOWN_LAYERS:
        return every
    return [every[round(place * (len(every) - 1) / (SHOWN_LAYERS - 1))] for place in range(SHOWN_LAYERS)]


def metrics(loads: Mapping[int, Load]) -> dict[str, float]:
    """What is logged of the layers by their numbers: moe/<layer>/<figure> for some of them, and moe/all/<figure>."""
    told = {str(layer): loads[layer].figures for layer in some_of(loads)} | {"all": over_all(loads.values())}
    return {f"moe/{where}/{name}": float(value) for where, figures in told.items() for name, value in figures.items()}


def describe(loads: Mapping[int, Load]) -> dict[str, Any]:
    """What summary.json says: the figures of every layer, by its number, and those over all; {} without experts."""
    if not loads:
        return {}
    layers = {layer: _said(load.figures) for layer, load in sorted(loads.items())}
    return {"layers": layers, "all": _said(over_all(loads.values()))}


def _said(figures: Mapping[str, float]) -> dict[str, float | None]:
    return {name: finite(value) for name, value in figures.items()}

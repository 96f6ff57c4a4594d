"""A learned vector per absolute position, added to the embedded token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn
from torch.nn import functional as F

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach
from builder.finding import Finding, Status
from builder.model.positions import Positions
from builder.registry import register


@register("position", "learned")
class Learned(Position):
    """x_p + P[p + offset], a table P (length + offset, D) of parameters (chapter 3.6; Gehring et al. 2017)."""

    roles = {"weight": "embedding"}
    relative = False

    class Config(BaseConfig):
        """The knobs of a table.

        length  the number of positions; None: the model's train_length
        offset  rows before that of position 0 (OPT: 2)
        """

        name: str = "learned"
        length: PositiveInt | None = None
        offset: NonNegativeInt = 0

        def shrink(self, site: Site) -> Self:
            return self.model_copy(update={"length": None})

    def __init__(self, config: Learned.Config, site: Site):
        super().__init__(config, site)
        self.limit = config.length or site.train_length
        self.offset = config.offset
        self.weight = nn.Parameter(torch.empty(self.limit + self.offset, site.d_model))  # (L + offset, D)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + F.embedding(positions.ids + self.offset, self.weight)  # (B, T, D)

    @classmethod
    def check(cls, config: Learned.Config, site: Site) -> Iterable[Finding]:
        length = config.length or site.train_length
        found = f"{length} positions, {reach(site)}"
        if site.train_length < site.deploy_length:
            rule = "a table ends: rows past the train length are missing or never trained"
            fix = f"model.deploy_length={site.train_length}, or train at {site.deploy_length}"
            yield Finding(Status.FAIL, 3, "length", found, rule, fix)
        elif length < site.train_length:
            rule = "the table must hold a row for every position of training"
            yield Finding(Status.FAIL, 3, "length", found, rule, f"length={site.train_length}, or null")
        else:
            yield Finding(Status.PASS, 3, "length", found, "every position that is deployed was trained")

"""A learned vector per absolute position, added to the embedded token."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from pydantic import PositiveInt
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
    """x_p + P[p], a table P (length, D) of parameters (chapter 3.6; Gehring et al. 2017)."""

    roles = {"weight": "embedding"}

    class Config(BaseConfig):
        """`length` is the number of rows; None: the model's train_length."""

        name: str = "learned"
        length: PositiveInt | None = None

    def __init__(self, config: Learned.Config, site: Site):
        super().__init__()
        self.limit = config.length or site.train_length
        self.weight = nn.Parameter(torch.empty(self.limit, site.d_model))  # (L, D)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + F.embedding(positions.ids, self.weight)  # (B, T, D)

    @classmethod
    def check(cls, config: Learned.Config, site: Site) -> Iterable[Finding]:
        length = config.length or site.train_length
        found = f"{length} rows, {reach(site)}"
        if length < max(site.train_length, site.deploy_length):
            rule = "the table must hold a row for every position of training and deployment"
            fix = f"model.position.length={max(site.train_length, site.deploy_length)}, or a shorter model.deploy_length"
            yield Finding(Status.FAIL, 3, "length", found, rule, fix)
        elif site.train_length < site.deploy_length:
            rule = "rows past the train length are never trained: what is generated there is noise"
            yield Finding(Status.FAIL, 3, "length", found, rule, f"model.deploy_length={site.train_length}")
        else:
            yield Finding(Status.PASS, 3, "length", found, "every position that is deployed was trained")

"""Fixed sines and cosines of the absolute position, added to the embedded token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.position import Position, reach
from builder.finding import Finding, Status
from builder.model.positions import Positions
from builder.registry import register


@register("position", "sinusoidal")
class Sinusoidal(Position):
    """PE(p, 2i) = sin(p w_i), PE(p, 2i + 1) = cos(p w_i), w_i = theta^(-2i / d) (chapter 3.6; Vaswani et al. 2017).

    In halves the sines stand before the cosines: PE(p, i) = sin(p w_i), PE(p, d / 2 + i) = cos(p w_i) (Marian).
    """

    relative = False

    class Config(BaseConfig):
        """`theta` sets the longest wave, 2 pi theta positions; `pairing`, where a wave's sine and cosine stand."""

        name: str = "sinusoidal"
        theta: PositiveFloat = 10000.0
        pairing: Literal["interleaved", "half"] = "interleaved"

    def __init__(self, config: Sinusoidal.Config, site: Site):
        super().__init__(config, site)
        self.theta, self.pairing = config.theta, config.pairing

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        width = x.shape[-1]
        exponent = torch.arange(0, width, 2, device=x.device, dtype=torch.float32) / width
        angles = positions.ids[..., None] * self.theta**-exponent  # (B, T, D/2)
        if self.pairing == "half":
            waves = torch.cat((angles.sin(), angles.cos()), dim=-1)  # (B, T, D)
        else:
            waves = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(-2)  # (B, T, D)
        return x + waves.to(x.dtype)

    @classmethod
    def check(cls, config: Sinusoidal.Config, site: Site) -> Iterable[Finding]:
        if site.d_model % 2:
            rule = "sines and cosines come in pairs: d_model must be even"
            yield Finding(Status.FAIL, 1, "name", f"d_model {site.d_model}", rule, f"model.d_model={site.d_model + 1}")
        if site.deploy_length > site.train_length:
            rule = "the formula goes on past the train length, what the model learnt of it mostly doesn't"
            fix = f"model.deploy_length={site.train_length}, or expect worse text past it"
            yield Finding(Status.WARN, 3, "name", reach(site), rule, fix)
        else:
            yield Finding(Status.PASS, 3, "name", reach(site), "every position that is deployed was trained")

"""An expert that no grouped product can hold: it has a parameter beside its linear maps."""

import torch
from torch import Tensor, nn

from builder.components.ffn.glu import GLU


class Scaled(GLU):
    """GLU(x) * g, g a number for each of its inputs."""

    class Config(GLU.Config):
        """The knobs of a GLU."""

        name: str = "tests.memory.apart:Scaled"

    def __init__(self, config, site):
        super().__init__(config, site)
        self.gain = nn.Parameter(torch.ones(site.d_model))
        self.roles = {"gain": "scale"}

    def forward(self, x: Tensor, ctx) -> Tensor:
        return super().forward(x, ctx) * self.gain

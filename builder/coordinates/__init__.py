"""The coordinate check: does anything in the model grow with its width, as drawn or once it has learned a little?

Copies of the model, narrower and wider, take a few steps; after each, the mean size of what every part gives is
compared across the widths (Yang et al. 2022, "Tensor Programs V", appendix D.1). Where nothing grows, and nothing
moves less the wider it is, a learning rate that fits one width fits the others.
"""

from __future__ import annotations

from .measure import count, measure
from .picture import draw, write
from .render import table
from .result import Coordinates
from .widths import read_widths, refuse

__all__ = ["Coordinates", "count", "draw", "measure", "read_widths", "refuse", "table", "write"]

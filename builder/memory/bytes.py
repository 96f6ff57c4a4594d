"""Bytes by what holds them: the parts that a forecast tells apart, and their arithmetic."""

from __future__ import annotations

from dataclasses import astuple, dataclass


@dataclass(frozen=True)
class Bytes:
    """How many bytes of each kind are held at one moment, or how many more than at another.

    weights         parameters and buffers
    gradients       of the parameters, from the moment they are whole
    optimizer       what it keeps for each parameter, what a step makes besides, and averages of weights
    activations     of the layers: what is saved for the backward pass, and what is made on the way
    logits          what stands behind the last layer: logits, and what the loss makes of them
    """

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    logits: int = 0

    @property
    def total(self) -> int:
        """Bytes of all kinds together."""
        return sum(astuple(self))

    def __add__(self, other: Bytes) -> Bytes:
        return Bytes(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    def __sub__(self, other: Bytes) -> Bytes:
        return Bytes(*(mine - yours for mine, yours in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Bytes:
        return Bytes(*(mine * times for mine in astuple(self)))


PARTS = tuple(Bytes.__dataclass_fields__)
"""Their names, in order."""

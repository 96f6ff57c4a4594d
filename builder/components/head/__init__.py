"""What a model ends in: from hidden states to the numbers that its objective asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import model_validator
from torch import Tensor, nn

from builder.component import Component, Room, Site, refuse_all
from builder.component import Config as BaseConfig
from builder.finding import Finding
from builder.model.activations import ACTIVATIONS, Activation
from builder.model.linear import Linear, linear_flops

Gives = Literal["tokens", "classes", "token_classes", "sentence"]


class HeadConfig(BaseConfig):
    """A layer that stands before the last map of a head, norm(f(A x + a)) (Devlin et al. 2019).

    transform       its activation f; None: there is no such layer
    transform_bias  whether it has the bias a
    transform_norm  of what it gives; None: none
    """

    transform: Activation | None = None
    transform_bias: bool = True
    transform_norm: Annotated[BaseConfig, Room("norm")] | None = None

    @model_validator(mode="after")
    def _a_transform_is_there_to_be_told_of(self) -> Self:
        idle = [] if self.transform is not None else ["transform_bias", "transform_norm"]
        rule = "nothing reads it while transform is null"
        fields = type(self).model_fields
        found = [(key, getattr(self, key)) for key in idle if getattr(self, key) != fields[key].default]
        refuse_all((key, str(value), rule, "transform=gelu") for key, value in found)
        return self

    def shrink(self, site: Site) -> Self:
        return self.model_copy(update={"transform_norm": self.transform_norm and self.transform_norm.shrink(site)})

    def drawn(self, inner: str) -> str:
        """The layer over what is drawn as `inner`."""
        if self.transform is None:
            return inner
        made = f"{self.transform}(A {inner}{' + a' * self.transform_bias})"
        return made if self.transform_norm is None else f"norm({made})"


class Head(nn.Module, Component):
    """Built as `Head(config, site, vocab_size)`; what it returns is `Output.logits`.

    Its Config is a `HeadConfig`; a subclass calls `add_transform` once it is a module, and `transformed` before its
    last map.

    tokens          (B, T, V)   for each position, one for each row of the vocabulary
    classes         (B, C)      for each row
    token_classes   (B, T, C)   for each position
    sentence        (B, E)      for each row, a vector
    """

    gives: ClassVar[Gives]
    width_of: ClassVar[str | None] = None
    """The knob that says how many numbers there are; None: the vocabulary does."""

    def add_transform(self, config: HeadConfig, site: Site) -> None:
        """Makes the layer before the last map, or none."""
        norm: Any = config.transform_norm
        has = config.transform is not None
        self.activation = ACTIVATIONS[config.transform] if config.transform is not None else None
        self.transform = Linear(site.d_model, site.d_model, bias=config.transform_bias) if has else None
        self.norm = None if norm is None else norm.component(norm, site.d_model)

    def transformed(self, x: Tensor) -> Tensor:
        """x (..., D) through the layer before the last map, if there is one: (..., D)."""
        if self.transform is None or self.activation is None:
            return x
        x = self.activation(self.transform(x))
        return x if self.norm is None else self.norm(x)

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        """hidden (B, T, D), real (B, T) bool or None for all -> what this head gives."""
        raise NotImplementedError

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add."""
        return linear_flops(self, tokens)

    @classmethod
    def draw(cls, config: Any) -> str:
        """What it computes, as the checklist draws it: h what leaves the layers."""
        raise NotImplementedError

    @classmethod
    def judge(cls, config: Any, rows: int) -> Iterable[Finding]:
        """What the checklist should say of it over a vocabulary of so many rows; paths are relative to its slot."""
        return ()

    @classmethod
    def plain(cls, config: Any) -> bool:
        """Whether it is no more than a product, which needs no drawing."""
        return False

"""How the parts of a layer are wired to the residual stream: where norms stand, in which order things are added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field
from torch import Tensor, nn

from builder.component import Component, Room, Site
from builder.component import Config as BaseConfig
from builder.model.context import Context


class BlockConfig(BaseConfig):
    """`dropout` acts on what a part adds to the stream; `norm` None: the model's; `residual` None: plain addition."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    norm: Annotated[BaseConfig, Room("norm")] | None = None
    residual: Annotated[BaseConfig, Room("residual")] | None = None

    def shrink(self, site: Site) -> Self:
        small = {key: slot and slot.shrink(site) for key, slot in (("norm", self.norm), ("residual", self.residual))}
        return self.model_copy(update=small)


class Block(nn.Module, Component):
    """One layer; built as `Block(config, site, parts)` with parts {"mixer": ..., "ffn": ...} in order of use.

    Each part is called as `part(x, ctx)`. The parts are children under their own names, beside them their norms and,
    unless addition is plain, what weighs it: `layers.3.mixer`, `layers.3.mixer_norm`, `layers.3.mixer_residual`.
    """

    Config = BlockConfig
    needs_final_norm: ClassVar[bool]
    """Whether the stream leaves this block unnormalised, so that the stack must end in a norm."""

    def __init__(self, config: Any, site: Site, parts: Mapping[str, nn.Module]):
        super().__init__()
        self.parts = tuple(parts)
        self.weighed = {} if config.residual is None else {name: self.residual_name(name) for name in parts}
        norm: Any = config.norm or site.norm
        residual: Any = config.residual
        for name, part in parts.items():
            self.add_module(name, part)
            for child in self.norm_names(config, name):
                if child not in self._modules:  # parts may share one
                    self.add_module(child, norm.component(norm, site.d_model))
            if name in self.weighed and self.weighed[name] not in self._modules:
                self.add_module(self.weighed[name], residual.component(residual, site))
        self.dropout = nn.Dropout(config.dropout) if config.dropout else _unchanged  # no call of a module in decode

    @classmethod
    def norm_names(cls, config: Any, part: str) -> Sequence[str]:
        """The names of the norms that a part has, or shares."""
        return (f"{part}_norm",)

    @classmethod
    def residual_name(cls, part: str) -> str:
        """The name of what weighs a part against the stream; parts that are added together share it."""
        return f"{part}_residual"

    @classmethod
    def draw(cls, config: Any, site: Site, parts: Sequence[str]) -> str:
        """A layer as the checklist draws it, its parts called so: `x = x + attention(norm(x)); x = ...`."""
        return f"{cls.__name__}({', '.join(parts)})"

    @classmethod
    def draw_sum(cls, config: Any, site: Site, *added: str) -> str:
        """The stream after a write of what is `added`, as it is drawn."""
        if config.residual is None:
            return " + ".join(("x", *added))
        return config.residual.component.draw(config.residual, site, added[0] if len(added) == 1 else _sum(added))

    def add(self, part: str, x: Tensor, y: Tensor) -> Tensor:
        """The stream x after the write of y, which a part adds: plainly, or weighed as the config says; (B, T, D)."""
        return getattr(self, self.weighed[part])(x, y) if part in self.weighed else x + y

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence of `tokens` tokens: those of the parts and of what weighs them."""
        children = (*self.parts, *dict.fromkeys(self.weighed.values()))
        return sum(self.get_submodule(name).flops(tokens) for name in children)  # type: ignore[operator]

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        raise NotImplementedError


def _unchanged(x: Tensor) -> Tensor:
    return x


def _sum(added: Sequence[str]) -> str:
    return f"({' + '.join(added)})"

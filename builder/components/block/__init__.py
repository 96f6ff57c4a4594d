"""How the parts of a layer are wired to the residual stream: where norms stand, in which order things are added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from builder.component import Component, Room, Site
from builder.component import Config as BaseConfig
from builder.model.context import Context


class BlockConfig(BaseConfig):
    """`dropout` acts on what a part adds to the stream; `norm` None: the model's."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    norm: Annotated[BaseConfig, Room("norm")] | None = None


class Block(nn.Module, Component):
    """One layer; built as `Block(config, site, parts)` with parts {"mixer": ..., "ffn": ...} in order of use.

    Each part is called as `part(x, ctx)`. The parts are children under their own names, their norms beside them:
    `layers.3.mixer`, `layers.3.mixer_norm`.
    """

    Config = BlockConfig
    needs_final_norm: ClassVar[bool]
    """Whether the stream leaves this block unnormalised, so that the stack must end in a norm."""
    drawing: ClassVar[str]
    """One line that draws the wiring around a part called f."""

    def __init__(self, config: Any, site: Site, parts: Mapping[str, nn.Module]):
        super().__init__()
        self.parts = tuple(parts)
        norm = config.norm or site.norm
        for name, part in parts.items():
            self.add_module(name, part)
            self.add_module(f"{name}_norm", norm.component(norm, site.d_model))
        self.dropout = nn.Dropout(config.dropout)

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence of `tokens` tokens: those of the parts."""
        return sum(self.get_submodule(name).flops(tokens) for name in self.parts)  # type: ignore[operator]

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

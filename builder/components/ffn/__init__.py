"""What transforms each position by itself: the contract of a feed-forward part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from torch import Tensor, nn

from builder.component import Component, Site
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.linear import linear_flops


class FFN(nn.Module, Component):
    """A part of a layer that changes each position alone; built as `FFN(config, site)`."""

    part: ClassVar[str] = "ffn"
    alone: ClassVar[bool] = True
    """Whether it changes each position whatever the others are; only such a one can be an expert."""

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        raise NotImplementedError

    def ahead(self, x: Tensor, ctx: Context) -> Tensor:
        """As of a mixer: what is read in the place of the stream."""
        return x

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add; the checklist counts and compares."""
        return linear_flops(self, tokens)

    def divide(self, ranks: int) -> dict[str, str]:
        """Makes this part one of `ranks` that each hold a part of it; says of which maps the columns, that is outputs,
        are divided, and of which the rows, whose outputs are then summed. Nothing: every rank holds all of it.
        """
        return {}

    @property
    def n_groups(self) -> int:
        """How many parts of it tokens choose among, which may lie on as many ranks; 0: it has none."""
        return 0

    def spread_over(self, mesh: Any) -> list[nn.Parameter]:
        """Leaves on each rank of a mesh the parts that are its own; returns the parameters that are so divided now."""
        return []

    @property
    def counts_ahead(self) -> bool:
        """Whether its loss needs what all passes of a step count, before the first of them is gone backward through."""
        return False

    def idle_parameters(self) -> int:
        """How many of its parameters one token doesn't pass through."""
        return 0

    def dispatched(self) -> int:
        """How many numbers of one token go to experts, which may be on other devices; as many come back."""
        return 0

    @classmethod
    def left_unbalanced(cls, config: Any) -> bool:
        """Whether tokens choose among parts of it, and nothing balances them, as was asked for."""
        return False

    @classmethod
    def judge_pass(cls, config: Any, tokens: int) -> Iterable[Finding]:
        """What the checklist should say of a training pass over so many tokens; paths are relative to its slot."""
        return ()


def divided_inside(ffn: nn.Module, outwards: Iterable[str], back: str, width: int, ranks: int) -> dict[str, str]:
    """How an ffn of these maps alone is divided: by its inner width, if that can be; see `FFN.divide`."""
    into = list(outwards)
    held = {name.partition(".")[0] for name, _ in ffn.named_parameters()}
    plain = held == {*into, back} and all(isinstance(ffn.get_submodule(name), nn.Linear) for name in held)
    return dict.fromkeys(into, "columns") | {back: "rows"} if plain and width % ranks == 0 else {}


def inner_width(d_ff: int, matrices: int, activation: str, bias: bool, site: Site) -> Finding:
    """What the checklist says of an ffn's width: d_ff, its ratio to d, and the weights that follow (chapter 3.5)."""
    found = f"d_ff {d_ff} = {d_ff / site.d_model:.3g} d, {activation}, {'with' if bias else 'no'} bias"
    weights = matrices * site.d_model * d_ff
    if d_ff * site.copies < site.d_model:
        several = f", nor can {site.copies} such" if site.copies > 1 else ""
        rule = f"an ffn narrower than the stream can't carry what it reads{several}"
        return Finding(
            Status.WARN, 1, "d_ff", found, rule, f"d_ff={4 * site.d_model}, or {8 * site.d_model // 3} when gated"
        )
    whose = f"in one of {site.copies} ffns that a token passes" if site.copies > 1 else "a layer"
    return Finding(Status.PASS, 1, "d_ff", found, f"{matrices} d d_ff = {weights:,} weights {whose}")

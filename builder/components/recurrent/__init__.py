"""Recurrent networks: the contract of a cell that goes through a sequence token by token, and its state.

A cell is torch's own kernel: it says how many `gates` it has and what it `carries` from token to token, and calls the
kernel in `run`. Where rows differ, by padding or by packed documents, what runs is a packed sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from builder.component import Config as BaseConfig
from builder.component import Site
from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.compact import compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.mask import Mask
from builder.model.precision import own_dtype
from builder.model.row_state import RowState

from ._packed import Packed, packed


class RecurrentConfig(BaseConfig):
    """The knobs that every recurrent network has: `d_hidden` is the width H of what it carries; None: d_model."""

    d_hidden: PositiveInt | None = None

    def width(self, site: Site) -> int:
        """H, at a site."""
        return self.d_hidden or site.d_model

    def grows(self) -> Iterable[str]:
        return () if self.d_hidden is None else ("d_hidden",)

    def shrink(self, site: Site) -> Self:
        return self.model_copy(update={"d_hidden": self.d_hidden and min(self.d_hidden, 24)})


class Carried(Linear):
    """h U^T + b for each of G gates: the map that a cell applies to what it carries.

    U starts orthogonal, gate by gate, so that a signal neither fades nor grows at first (Saxe et al. 2014; Le et al.
    2015), b from 0 but for what `opened` says of the gates: at a model-wide init too, which draws its own.
    """

    def __init__(self, width: int, gates: int, opened: dict[int, float]):
        super().__init__(width, gates * width, bias=True)
        self.roles = {"weight": "own", "bias": "own"}
        self.gates, self.opened = gates, opened
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Draws the weights of every gate."""
        if self.weight.is_meta:
            return
        for weight in self.weight.chunk(self.gates):  # (H, H)
            nn.init.orthogonal_(weight, generator=generator)
        for gate, bias in enumerate(self.bias.chunk(self.gates)):
            bias.fill_(self.opened.get(gate, 0.0))


class Recurrent(Mixer):
    """h_t = cell(x_t, h_{t-1}), y_t = h_t W_o: x (B, T, D) -> (B, T, D), h (H), h_0 = 0.

    `x` and `h` are the cell's maps of its input and of what it carries, (G H, D) and (G H, H), laid out as torch's own
    modules have them. What is carried is computed in float32 or wider, whatever the dtype of the weights.
    """

    gates: ClassVar[int]
    carries: ClassVar[tuple[str, ...]] = ("hidden",)
    """The vectors of width H that go from token to token; the first is what the cell gives."""

    ordered = True

    def __init__(self, config: Any, site: Site):
        super().__init__()
        self.width = config.width(site)
        self.x = Linear(site.d_model, self.gates * self.width, bias=True)
        self.h = Carried(self.width, self.gates, self.opened(config))
        self.o = Linear(self.width, site.d_model, role="residual")

    @classmethod
    def opened(cls, config: Any) -> dict[int, float]:
        """The biases that gates start from, by gate, where they aren't 0."""
        return {}

    def run(self, x: tuple[Any, ...], carried: list[Tensor], told: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """torch's kernel: the hidden state after each token, then what is carried behind the last, (1, B, H) each.

        `x` is a batch (B, T, D), with B rows in the result too; or tokens (N, D) and how many of them each step reads.
        `told` is what kernels want to know behind that and what is carried: the weights and the settings.
        """
        raise NotImplementedError

    def sees(self, mask: Mask) -> Mask:
        return mask.backward()

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        (batch, length), state = x.shape[:2], ctx.state
        ctx.record("gates", "B T GH", batch, length, self.x.out_features)
        ctx.record("hidden state", "B T H", batch, length, self.width)
        rows = compact(ctx, length)
        moved, before = (
            rows.gather(x),
            self._none(batch, x) if state is None else [state[name] for name in self.carries],
        )
        if rows.starts is not None or (state is not None and rows.real is not None):
            hidden, after = self._apart(moved, before, _aside(packed)(rows, batch, length))
        else:  # tokens of padding stand behind the real ones, and what comes of them isn't read
            hidden, after = self._run((moved,), before)
        if state is not None:
            for name, value in zip(self.carries, after, strict=True):
                state[name] = value
        return rows.scatter(self.o(hidden.to(x.dtype)))  # (B, T, D)

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> RowState:
        like = {"device": device, "dtype": torch.promote_types(dtype, torch.float32)}
        return RowState(**{name: torch.zeros(batch, self.width, **like) for name in self.carries})

    def _none(self, batch: int, like: Tensor) -> list[Tensor]:
        wide = torch.promote_types(like.dtype, torch.float32)
        return [like.new_zeros(batch, self.width, dtype=wide) for _ in self.carries]

    def _run(self, x: tuple[Any, ...], carried: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        wide, batch_first = carried[0].dtype, (True,)[len(x) - 1 :]  # of packed tokens nothing comes first
        weights = [w.to(wide) for w in (self.x.weight, self.h.weight, self.x.bias, self.h.bias)]
        settings = (True, 1, 0.0, False, False)  # with biases, one layer, no dropout, not random, in one direction
        with own_dtype(x[0]):  # it would choose the dtype of the kernel
            given = (x[0].to(wide), *x[1:])
            out, *last = _aside(self.run)(given, [c[None] for c in carried], (weights, *settings, *batch_first))
        return out, [c[0] for c in last]

    def _apart(self, x: Tensor, before: list[Tensor], parts: Packed) -> tuple[Tensor, list[Tensor]]:
        """Each sequence by itself: from the start where it is a document of a row, else from what the row carries."""
        if not len(parts.tokens):
            return before[0][:, None].expand(-1, x.shape[1], -1), before
        first = [c[parts.rows] for c in before]
        out, last = self._run((x.flatten(0, 1)[parts.tokens], parts.sizes), first)
        empty = out.new_zeros(x.shape[0] * x.shape[1], self.width)
        hidden = empty.index_copy(0, parts.tokens, out).unflatten(0, x.shape[:2])  # (B, T, H)
        return hidden, [c.index_copy(0, parts.rows, new) for c, new in zip(before, last, strict=True)]

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        width = config.width(site)
        rule = f"{len(cls.carries) * width:,} numbers are kept a row, however long it is"
        yield Finding(Status.PASS, 1, "d_hidden", f"H {width}, {cls.gates} gates", rule)
        if site.two_sided:
            rule = "a state is carried from left to right: these layers read what stands before, whatever may be seen"
            yield Finding(Status.PASS, 2, "name", config.name, rule)


def _aside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which a compiler leaves as it is: it would write a kernel out step by step, for minutes."""
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function  # type: ignore[return-value]

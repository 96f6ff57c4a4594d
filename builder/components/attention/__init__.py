"""Sequence mixers that read other positions by content: the contract of a mixer, and what every attention shares.

An attention turns queries and keys with `ctx.position.rotate` before `ctx.state.append` keeps them, and hands them to
`self.look`, which adds the scheme's bias, looks through `self.sees(ctx.mask)`, and takes the fastest kernel. GQA does
this in `project` and `attend`, which `read` calls, so a variant overrides what it changes and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field, PositiveFloat, PositiveInt, field_validator
from torch import Tensor, nn

from builder import registry
from builder.component import Component, Room, Site, refuse
from builder.component import Config as BaseConfig
from builder.components.kernel import Case, Scoring, attend, fastest, kernels
from builder.components.position import Position
from builder.finding import Finding, Status
from builder.model.context import Context
from builder.model.linear import linear_flops
from builder.model.mask import Mask
from builder.model.span import Span
from builder.model.state import LayerState


class Mixer(nn.Module, Component):
    """A part of a layer that mixes positions; built as `Mixer(config, site)`, called as `forward(x, ctx)`.

    It may look at other positions only as far as `ctx.mask` lets it, with and without `ctx.state`.
    Modules say in `roles` what their parameters are, so that initialisation and weight decay know (see
    components/init): a table of biases is a `bias`.
    """

    part: ClassVar[str] = "mixer"
    ordered: ClassVar[bool] = False
    """Whether it knows the order of tokens by itself, since something is carried along them."""

    recalls: ClassVar[bool] = False
    """Whether it reads `ctx.embedded`, what entered the first layer."""

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        """x (B, T, D) -> (B, T, D); with `ctx.state`, T new positions behind those already in the state."""
        raise NotImplementedError

    def ahead(self, x: Tensor, ctx: Context) -> Tensor:
        """What is normed and read in the place of the stream x (B, T, D), which itself stays as it is; called once in a
        pass, before `forward`."""
        return x

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add: its linear maps, and what else it does.

        A mixer that multiplies anything but its linear maps adds that; the checklist counts a run and compares.
        """
        return linear_flops(self, tokens)

    def new_state(self, batch: int, max_length: int, *, device: torch.device, dtype: torch.dtype) -> LayerState:
        """An empty state for `batch` rows of at most `max_length` tokens."""
        raise NotImplementedError

    def divide(self, ranks: int) -> dict[str, str]:
        """Makes this mixer one of `ranks` that each hold a part of it; says of which maps the columns, that is outputs,
        are divided, and of which the rows, whose outputs are then summed. Nothing: every rank holds all of it.
        """
        return {}

    def sees(self, mask: Mask) -> Mask:
        """The part of the pass's mask that this mixer looks through; a local mixer narrows it."""
        return mask

    @staticmethod
    def position_of(config: Any) -> Any:
        """The position slot of this mixer's config; None stands for the model's."""
        return getattr(config, "position", None)

    @staticmethod
    def heads_of(config: Any) -> int | None:
        """How many query heads a position scheme's bias is for; None when this mixer adds none."""
        return getattr(config, "n_heads", None)

    @classmethod
    def score_width(cls, config: Any, site: Site) -> int | None:
        """How many products a score sums, which the knob `scale` multiplies; None when it has no scores."""
        return None

    @classmethod
    def computed_by(cls, config: Any, site: Site) -> str | None:
        """Which kernels compute it in training, in words; None when there is no choice."""
        return None

    @classmethod
    def untrainable(cls, config: Any, site: Site, device: str) -> str | None:
        """Why it can't be trained on a kind of device, `cpu` or `cuda`; None when it can."""
        return None


class AttentionConfig(BaseConfig):
    """The knobs that every attention has.

    window      a query sees itself and the window - 1 keys before it, and behind it where it may; None: all of them
    scale       on the scores; None: one over the root of the head width
    softcap     c bounds the scores by c tanh(s / c), before bias and mask (Gemma 2)
    sinks       one learned score per head takes weight and gives nothing (gpt-oss; Xiao et al. 2023)
    dropout     of the attention weights, in training
    position    None: the model's
    kernel      None: the fastest that can compute it; eager is the reference
    """

    n_heads: PositiveInt
    window: PositiveInt | None = None
    scale: PositiveFloat | None = None
    softcap: PositiveFloat | None = None
    sinks: bool = False
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    position: Annotated[BaseConfig, Room("position")] | None = None
    kernel: str | None = None

    @field_validator("kernel")
    @classmethod
    def _kernel_exists(cls, value: str | None) -> str | None:
        try:
            kernels(value)
        except registry.UnknownName as error:
            refuse("", value, f"{error}; names: null, {', '.join(error.valid)}", f"kernel={error.nearest or 'null'}")
        return value

    def shrink(self, site: Site) -> Self:
        window = self.window and min(self.window, 4)  # narrower than what a probe reads, so that it is felt
        position = self.position and self.position.shrink(site)
        elsewhere = self.kernel and kernels(self.kernel)[0].refuses(Case("cpu", grad=True))  # probes run on a CPU
        kernel = None if elsewhere else self.kernel
        return self.model_copy(update={"window": window, "position": position, "kernel": kernel})


class Attention(Mixer):
    """softmax(cap(q k^T scale) + bias over what is seen) v, whatever queries, keys and values are (chapter 3.2)."""

    roles = {"sinks": "bias"}

    def __init__(self, config: Any, width: int):
        """`width` is that of a query and a key: the scale keeps the variance of a score at 1 (chapter 3.2.1)."""
        super().__init__()
        self.heads = config.n_heads
        self.scale = config.scale or width**-0.5
        self.softcap, self.window, self.dropout = config.softcap, config.window, config.dropout
        self.sinks = nn.Parameter(torch.zeros(self.heads)) if config.sinks else None  # (H,)
        self.kernels = kernels(config.kernel)

    def sees(self, mask: Mask) -> Mask:
        return mask.within(self.window)

    def look(self, q: Tensor, k: Tensor, v: Tensor, ctx: Context, span: Span | None = None) -> Tensor:
        """What each head reads: q (B, T, H, E), k (B, S, K, E), v (B, S, K, Ev) -> (B, T, H, Ev).

        `span` is what `ctx.state.append` said of these keys; None: they are those of this pass.
        """
        if not len(q):  # the shape ledger's batch of no rows needs neither mask nor bias, whatever the length
            return q.new_zeros(*q.shape[:3], v.shape[-1])
        keys = ctx.positions if span is None else ctx.key_positions.of(span)
        scoring = Scoring(
            mask=self.sees(ctx.mask) if span is None else self.sees(ctx.mask).over(span),
            scale=self.scale,
            softcap=self.softcap,
            bias=ctx.position.bias(ctx.positions, keys),
            sinks=self.sinks,
            dropout=self.dropout if self.training else 0.0,
        )
        return attend(self.kernels, q, k, v, scoring)

    @classmethod
    def computed_by(cls, config: Any, site: Site) -> str | None:
        found = []
        for device, name in (("cpu", "a CPU"), ("cuda", "a GPU")):
            able = cls.untrainable(config, site, device) is None
            case = cls._case(config, site, device)
            found.append(f"{fastest(kernels(config.kernel), case).__name__ if able else 'none'} on {name}")
        return ", ".join(found)

    @classmethod
    def untrainable(cls, config: Any, site: Site, device: str) -> str | None:
        case = cls._case(config, site, device)
        reasons = [kernel.refuses(case) for kernel in kernels(config.kernel)]
        return None if None in reasons else "; ".join(map(str, reasons))

    @classmethod
    def narrowest(cls, config: Any, site: Site) -> int:
        """The width of a head's keys or values, whichever is less: some kernels take none below 16."""
        return 16

    @classmethod
    def _case(cls, config: Any, site: Site, device: str) -> Case:
        """Training with this attention, as far as the kernels care."""
        position = config.position or site.position
        return Case(
            device=device,
            width=cls.narrowest(config, site),
            flag=config.window is None or config.window >= site.train_length,
            softcap=config.softcap is not None,
            bias=position.component.bias is not Position.bias,
            sinks=config.sinks,
            dropout=config.dropout > 0,
            grad=True,
        )

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        if config.window is not None:
            yield _window(config.window, site)
        refused = [cls.untrainable(config, site, device) for device in ("cpu", "cuda")]
        found = cls.computed_by(config, site) or ""
        if None in refused:
            rule = "the fastest that computes it in training" if config.kernel is None else "as asked for"
            yield Finding(Status.PASS, 4, "kernel", found, rule)
        else:
            yield Finding(Status.FAIL, 4, "kernel", str(config.kernel), str(refused[0]), "kernel=null")


def _window(window: int, site: Site) -> Finding:
    longest = max(site.train_length, site.deploy_length)
    found = f"window {window}, trained at {site.train_length}, deployed at {site.deploy_length}"
    if window == 1 < longest:
        rule = "a query sees itself alone: nothing is read from anywhere else, and there is no order to be told"
        return Finding(Status.WARN, 2, "window", found, rule, f"window=null, or 2 to {longest - 1}")
    if window >= longest:
        rule = "no sequence is longer than the window: every query sees all that the mask shows"
        return Finding(Status.WARN, 2, "window", found, rule, f"window=null, or less than {longest}")
    sides = "on each side of it" if site.two_sided else "before it"
    return Finding(Status.PASS, 2, "window", found, f"a query sees itself and the {window - 1} keys {sides}")

"""Who goes to which expert: the contract of a router, and the map from token to expert that all of them have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from builder.component import Component, Site
from builder.component import Config as BaseConfig
from builder.finding import Finding
from builder.model.dispatch import Dispatch, count
from builder.model.precision import own_dtype
from builder.model.seats import Seats


@dataclass(frozen=True)
class Routing:
    """What a router makes of N tokens.

    dispatch        the way to the experts and back
    logits          (N, X) float32
    probabilities   (N, X) float32, each token's sum to 1: what a balancing loss averages
    chosen          (N, k) int64, before any capacity, X where padding stands; None when it is experts that choose
    over, dropped   int64 scalars: choices that fell on a full expert; those of them that found no other
    taken           (X,) int64, how many tokens each expert took, when it is experts that choose
    """

    dispatch: Dispatch
    logits: Tensor
    probabilities: Tensor
    chosen: Tensor | None
    over: Tensor
    dropped: Tensor
    taken: Tensor | None = None

    @property
    def asked(self) -> Tensor:
        """(X,) int64, how many tokens go to each expert before any capacity."""
        if self.chosen is None:
            return self.dispatch.counts if self.taken is None else self.taken
        return count(self.chosen.flatten(), self.logits.shape[-1])


class RouterConfig(BaseConfig):
    """`bias` of the map; `jitter` j multiplies its input, in training, by numbers from 1 - j to 1 + j (Switch)."""

    bias: bool = False
    jitter: Annotated[float, Field(ge=0, lt=1)] = 0.0


class Router(nn.Module, Component):
    """Sends each token to experts; built as `Router(config, d_model, n_experts, top_k, learns)`.

    Logits are computed in float32 at least, whatever the precision around them. With `learns` the experts have a
    `preference` (X,) that is added when they are chosen, and nowhere else; `settle` moves it, gradients don't.
    """

    Config = RouterConfig
    balanced: ClassVar[bool] = False
    """Whether every expert gets as many tokens by construction, so that nothing has to balance them."""

    rows_compete: ClassVar[bool] = False
    """Whether where a token goes depends on the other tokens of the pass, those of other rows too."""

    def __init__(self, config: Any, d_model: int, n_experts: int, top_k: int, learns: bool = False):
        super().__init__()
        self.n_experts, self.top_k, self.jitter = n_experts, top_k, config.jitter
        self.weight = nn.Parameter(torch.empty(n_experts, d_model))
        self.bias = nn.Parameter(torch.empty(n_experts)) if config.bias else None
        self.roles = {"weight": "readout", "bias": "bias"}
        self.register_buffer("preference", torch.zeros(n_experts) if learns else None)

    def logits(self, x: Tensor) -> Tensor:
        """x (N, D) -> (N, X), in float32 or wider."""
        return exact_linear(self.jittered(x), self.weight, self.bias)

    def jittered(self, x: Tensor) -> Tensor:
        """The tokens as the router reads them, (N, D): with jitter in float32: bfloat16 knows few numbers near 1."""
        if not (self.training and self.jitter):
            return x
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        return x * torch.empty_like(x).uniform_(1 - self.jitter, 1 + self.jitter)

    def route(self, x: Tensor, real: Tensor | None, seats: Seats | None) -> Routing:
        """Where the tokens x (N, D) go; padding, where real (N,) is false, goes nowhere; None: there is none.

        `seats` None: every expert takes all that choose it.
        """
        raise NotImplementedError

    @torch.no_grad()
    def settle(self, counts: Tensor, speed: float) -> None:
        """b_x <- b_x + speed sign(mean - n_x): experts that fewer chose are preferred (Wang et al. 2024)."""
        if self.preference is not None:
            self.preference += speed * (counts.sum() - len(counts) * counts).sign()

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        kept = self.preference
        super()._apply(fn, recurse)
        if kept is not None and self.preference.dtype.itemsize < 4:  # 0.5 + 0.001 is 0.5 in bfloat16: it'd stand still
            self.preference = kept.to(self.preference.device, torch.float32)
        return self

    def flops(self, tokens: int) -> int:
        """FLOPs of a forward pass over one sequence, two for each multiply-add; the checklist counts and compares."""
        return 2 * tokens * self.weight.numel()

    def rows(self, tokens: int) -> int:
        """How many rows the experts compute for so many tokens, when none is turned away."""
        return tokens * self.top_k

    @classmethod
    def judge(cls, config: Any, n_experts: int, top_k: int, site: Site) -> Iterable[Finding]:
        """What the checklist should say of choosing `top_k` of `n_experts`; paths are below the mixture's slot."""
        return ()


def exact_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x W^T + b in float32 or wider, autocast or not: rounded logits would make ties, and ties make no choice."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    with own_dtype(x):
        return F.linear(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))

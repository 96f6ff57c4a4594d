"""Sequence mixers that carry a state of one size along a row: their contract, and what they share.

An implementation writes `run(x, row, state)` and `new_state`. It meets no padding: the real tokens of a row come first,
`row.real` says how many, and behind them its state must stay what it is. `row.starts` says where documents begin; what
was before is forgotten there. Decay and state are float32 or wider whatever the dtype of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from builder.component import Site
from builder.components.attention import Mixer
from builder.finding import Finding, Status
from builder.model.compact import Compact, compact
from builder.model.context import Context
from builder.model.linear import Linear
from builder.model.mask import Mask
from builder.model.row_state import RowState


class SSM(Mixer):
    """A mixer whose past is a state of one size; built as `SSM(config, site)`."""

    ordered = True

    def forward(self, x: Tensor, ctx: Context) -> Tensor:
        row = compact(ctx, x.shape[1])
        self.record(ctx, x)
        return row.scatter(self.run(row.gather(x), row, ctx.state))  # (B, T, D)

    def sees(self, mask: Mask) -> Mask:
        return mask.backward()

    def run(self, x: Tensor, row: Compact, state: RowState | None) -> Tensor:
        """x (B, T, D) as `row` moved it -> (B, T, D); a state is read, and left as it is behind the last real token."""
        raise NotImplementedError

    def record(self, ctx: Context, x: Tensor) -> None:
        """Reports the main tensors of a pass over x (B, T, D), with `ctx.record`."""

    @classmethod
    def check(cls, config: Any, site: Site) -> Iterable[Finding]:
        """A state runs one way, in an encoder too."""
        if site.two_sided:
            rule = "a state is carried from left to right: these layers read what stands before, whatever may be seen"
            yield Finding(Status.PASS, 2, "name", config.name, rule)


class Convolution(nn.Module):
    """y_t = sum_j w_j x_{t - j} + bias for each channel by itself, over the last `width` tokens of the same document.

    `weight` (C, width) holds the token itself last, as torch's convolution does. Drawn as torch draws one.
    """

    roles = {"weight": "own", "bias": "own"}

    def __init__(self, channels: int, width: int, bias: bool):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.empty(channels, width))
        self.bias = nn.Parameter(torch.empty(channels)) if bias else None
        self.reset(None)  # so that a layer that is built alone has its first values too

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Draws the weights from U(-1 / sqrt(width), 1 / sqrt(width)); the bias starts from 0."""
        bound = self.width**-0.5
        self.weight.uniform_(-bound, bound, generator=generator)
        if self.bias is not None:
            self.bias.zero_()

    def forward(self, x: Tensor, row: Compact, before: Tensor) -> Tensor:
        """x (B, T, C) behind the width - 1 tokens `before` (B, width - 1, C) -> (B, T, C)."""
        together = torch.cat((before, x), dim=1)  # (B, width - 1 + T, C)
        if row.starts is None:
            out: Tensor = _Taps.apply(together, self.weight)  # type: ignore[assignment]
            return out if self.bias is None else out + self.bias
        return self._within_documents(together, row.starts)

    def _within_documents(self, together: Tensor, starts: Tensor) -> Tensor:
        """The same, where a document takes nothing of those before it; starts (B, T)."""
        length, apart = starts.shape[1], starts.cumsum(1)  # (B, T), the number of the document
        out = together[:, self.width - 1 :] * self.weight[:, -1]
        for back in range(1, self.width):
            seen = together[:, self.width - 1 - back :][:, :length]
            same = F.pad(apart, (back, 0))[:, :length] == apart
            out = torch.addcmul(out, seen * same[..., None], self.weight[:, -1 - back])
        return out if self.bias is None else out + self.bias

    def history(self, x: Tensor, state: RowState | None) -> Tensor:
        """What came before x (B, T, C): the last tokens that the state kept as `inputs`, or nothing, which is zeros."""
        return x.new_zeros(len(x), self.width - 1, x.shape[-1]) if state is None else state["inputs"].to(x.dtype)


class _Taps(torch.autograd.Function):
    """The sum over taps in place: torch's convolution wants channels first, and would turn x about and back again."""

    @staticmethod
    def forward(ctx: Any, together: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(together, weight)
        width = weight.shape[1]
        length = together.shape[1] - width + 1
        out = together[:, :length] * weight[:, 0]
        for tap in range(1, width):
            out.addcmul_(together[:, tap : tap + length], weight[:, tap])
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (dy,), (together, weight) = grads, ctx.saved_tensors
        length, dx, dweight = dy.shape[1], dy.new_zeros(together.shape), []
        for tap in range(weight.shape[1]):
            dx[:, tap : tap + length].addcmul_(dy, weight[:, tap])
            dweight.append((together[:, tap : tap + length] * dy).sum((0, 1)))
        return dx, torch.stack(dweight, dim=1)


class Steps(Linear):
    """softplus(W x + bias): how far each channel's clock goes on at a token. At first between `least` and `most`.

    The bias is drawn so that its softplus is log-uniform there: a model-wide initialisation would make every clock the
    same (Gu & Dao 2023, "Mamba", section 3.6). With `narrow` inputs, R of them, W is drawn from U(-R^-0.5, R^-0.5).
    """

    def __init__(self, d_in: int, d_out: int, least: float, most: float, *, narrow: bool):
        super().__init__(d_in, d_out, bias=True)
        self.roles = {"weight": "own" if narrow else "matrix", "bias": "own"}
        self.least, self.most, self.narrow = least, most, narrow
        self.reset(None)

    @torch.no_grad()
    def reset(self, generator: torch.Generator | None) -> None:
        """Draws the bias, and the weight where it is its own."""
        if self.narrow:
            bound = self.in_features**-0.5
            self.weight.uniform_(-bound, bound, generator=generator)
        low, high = math.log(self.least), math.log(self.most)
        step = torch.empty(self.bias.shape, device=self.bias.device).uniform_(low, high, generator=generator).exp_()
        self.bias.copy_(step + torch.log(-torch.expm1(-step)))  # the inverse of softplus

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, R) -> (B, T, D), float32 or wider."""
        wide = torch.promote_types(x.dtype, torch.float32)
        return F.softplus(F.linear(x, self.weight).to(wide) + self.bias.to(wide))


def decays(log: Tensor) -> Tensor:
    """The decay rates -exp(log) of a state, in float32 or wider: in bfloat16 neighbouring rates would be the same."""
    return -log.to(torch.promote_types(log.dtype, torch.float32)).exp()

"""What every attention of a model looks at while it runs: the weights of the reference kernel, kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from builder.components.attention import Attention
from builder.components.kernel import Case, Scoring
from builder.components.kernel.eager import Eager, weigh


@dataclass
class Captured:
    """Weights by the name of their attention, such as `layers.3.mixer` or `encoder.layers.0.mixer`.

    `passes` has a tensor (B, H, T, S) float32 on the CPU for each pass. Each row sums to 1, less what a sink takes; the
    row of padding that sees nothing is zeros. A weight says where a head reads, and not why the model answers as it
    does: other weights can give the same output (chapter 3; Jain & Wallace 2019, "Attention is not Explanation").
    """

    passes: Mapping[str, list[Tensor]]

    def __getitem__(self, name: str) -> Tensor:
        """The weights (B, H, T, S) of the last pass."""
        return self.passes[name][-1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, kept in self.passes.items() if kept)

    def entropies(self) -> dict[str, Tensor]:
        """-sum_s w log w in nats by head, the mean over the rows of the last pass that see anything: (H,) by name."""
        return {name: _entropy(self[name]) for name in self}


@dataclass
class _Watching:
    """The reference kernel in the place of the fastest one, that keeps the weights it computes."""

    kept: list[Tensor] = field(default_factory=list)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        self.kept.append(weigh(q, k, scoring).detach().float().cpu())
        return Eager.attend(q, k, v, scoring)

    def refuses(self, case: Case) -> str | None:
        return None

    def speed(self, case: Case) -> int:
        return 0


@contextmanager
def capture_attention(model: nn.Module) -> Iterator[Captured]:
    """Keeps the weights of every attention while the block lasts; the model computes the same, and is left as it was.

    with capture_attention(model) as seen:
        model(tokens)
    seen["layers.0.mixer"]  # (B, H, T, S)
    """
    found = {name: part for name, part in model.named_modules() if isinstance(part, Attention)}
    before = {name: part.kernels for name, part in found.items()}
    watching = {name: _Watching() for name in found}
    try:
        for name, part in found.items():
            part.kernels = (watching[name],)  # pyright: ignore[reportAttributeAccessIssue]
        yield Captured({name: watch.kept for name, watch in watching.items()})
    finally:
        for name, part in found.items():
            part.kernels = before[name]


def _entropy(weights: Tensor) -> Tensor:
    rows = torch.special.entr(weights.double()).sum(-1)  # (B, H, T)
    seen = (weights.sum(-1) > 0).double()
    return ((rows * seen).sum((0, 2)) / seen.sum((0, 2)).clamp_min(1)).float()  # (H,)

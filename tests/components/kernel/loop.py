"""Attention as a loop over rows, queries, heads and visible keys, and the inputs that it and the kernels are given."""

from dataclasses import dataclass

import torch

from builder.components.kernel import Case, Scoring
from builder.model.bias import Bias
from builder.model.mask import Mask
from builder.model.positions import Positions
from builder.model.span import Span

B, H, K, E = 2, 4, 2, 8
PADS = torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 1, 1]], dtype=torch.bool)
NOBODY = torch.stack((PADS[0], torch.zeros(7, dtype=torch.bool)))
SEGMENTS = torch.tensor([[0, 0, 0, 1, 1, 2, 2], [5, 5, 5, 5, 5, 9, 9]])
# name: (queries, keys, mask)
MASKS = {
    "causal": (7, 7, Mask()),
    "both ways": (7, 7, Mask(causal=False)),
    "window": (7, 7, Mask(window=3)),
    "padding": (7, 7, Mask(real=PADS)),
    "a row of padding": (7, 7, Mask(real=NOBODY)),
    "segments": (7, 7, Mask(segments=SEGMENTS)),
    "chunk behind a state": (3, 7, Mask(past=4)),
    "one query over a ring": (1, 4, Mask(past=6, window=4, span=Span(3, 4, turn=3), real=PADS)),
}
MORE_MASKS = {
    "more keys than queries": (3, 7, Mask(causal=False)),
    "window over all": (7, 7, Mask(window=7)),
    "segments, padding, window": (7, 7, Mask(segments=SEGMENTS, real=PADS, window=2)),
    "chunk, window, padding": (3, 7, Mask(past=4, window=4, real=PADS)),
    "one query": (1, 7, Mask(past=6)),
    "one query, window": (1, 7, Mask(past=6, window=3)),
    "chunk over a ring": (3, 5, Mask(past=4, window=3, span=Span(2, 5))),
    "a full ring, turned": (1, 4, Mask(past=6, window=4, span=Span(3, 4, turn=1))),
}
BIASES = ("none", "tensor", "tensor of each row", "described")


def slots(mask, keys):
    """The slot of each key."""
    if mask.span is None:
        return list(range(keys))
    held = list(range(mask.span.first, mask.span.first + mask.span.length))
    return held[len(held) - mask.span.turn :] + held[: len(held) - mask.span.turn]


def sees(mask, b, query, slot):
    """The predicate of chapter 3.3, by words."""
    query += mask.past
    return (
        (not mask.causal or slot <= query)
        and (mask.window is None or abs(slot - query) < mask.window)
        and (mask.real is None or bool(mask.real[b, slot]))
        and (mask.segments is None or bool(mask.segments[b, slot] == mask.segments[b, query]))
    )


def by_loop(q, k, v, mask, scale, bias=None, softcap=None, sinks=None):
    """softmax over the visible keys and the sink, a query at a time; differentiable. `bias` is written out."""
    rows, at = [], slots(mask, k.shape[1])
    for b in range(q.shape[0]):
        for t in range(q.shape[1]):
            seen = [s for s in range(k.shape[1]) if sees(mask, b, t, at[s])]
            for h in range(q.shape[2]):
                group = h // (q.shape[2] // k.shape[2])
                if not seen:
                    rows.append(torch.zeros_like(v[0, 0, 0]))
                    continue
                scores = k[b, seen, group] @ q[b, t, h] * scale
                scores = scores if softcap is None else softcap * torch.tanh(scores / softcap)
                scores = scores if bias is None else scores + bias[b % len(bias), h, t, seen]
                weights = (scores - scores.max()).exp()
                total = weights.sum() + (0 if sinks is None else (sinks[h] - scores.max()).exp())
                rows.append((weights / total) @ v[b, seen, group])
    return torch.stack(rows).view(*q.shape[:3], v.shape[-1])


@dataclass
class Pass:
    """One problem: `leaves` are what gradients are taken of, `written` is the bias as the loop reads it."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scoring: Scoring
    leaves: list[torch.Tensor]
    written: torch.Tensor | None

    @property
    def case(self):
        scoring = self.scoring
        flags = {name: getattr(scoring, name) is not None for name in ("softcap", "bias", "sinks")}
        return Case("cpu", single=self.q.shape[1] == 1, **flags)

    def loop(self):
        scoring = self.scoring
        return by_loop(
            self.q, self.k, self.v, scoring.mask, scoring.scale, self.written, scoring.softcap, scoring.sinks
        )


def problem(name, bias="none", softcap=None, sinks=False, dtype=torch.float64, kv_heads=K, width=E, value=E):
    """The same numbers for the same arguments; in a narrower dtype, those numbers rounded."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape, scale=1.0):
        return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype).requires_grad_()

    queries, keys, mask = (MASKS | MORE_MASKS)[name]
    q, k, v = draw(B, queries, H, width), draw(B, keys, kv_heads, width), draw(B, keys, kv_heads, value)
    leaves, added, written = [q, k, v], None, None
    if bias.startswith("tensor"):
        added = written = draw(B if "row" in bias else 1, H, queries, keys)
        leaves.append(added)
    elif bias == "described":  # positions that differ from row to row, as where there is padding
        table, rows = draw(H, 9), B if mask.real is not None else 1
        at = (torch.randint(9, (rows, n), generator=generator) for n in (queries, keys))
        asked, given = at
        added = Bias(lambda h, t, s: table[h, (t - s) % 9], H, Positions(asked), Positions(given))
        written = torch.stack([table[:, (asked[b][:, None] - given[b]) % 9] for b in range(rows)])
        leaves.append(table)
    sink = draw(H) if sinks else None
    leaves += [sink] if sinks else []
    return Pass(q, k, v, Scoring(mask, E**-0.5, softcap, added, sink), leaves, written)


def gradients(out, leaves):
    """Of one fixed weighing of the output."""
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return torch.autograd.grad((out.double() * weights).sum(), leaves)

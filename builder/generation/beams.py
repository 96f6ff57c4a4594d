"""Beam search: the likeliest answers that are found when each step keeps the best `num_beams` beginnings of a row."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..errors import Problem
from .found import finite, told, whole
from .request import GenerationError
from .together import unfit

_NEVER = -math.inf
"""The score of a beam that isn't there."""

MOST_BEAMS = 1024
"""Beams that a row may have: each is a row of the state, and wider searches find answers that are likelier and worse
(Stahlberg & Byrne 2019)."""

_STEEP = 1e7
"""The steepest length penalty that is told from a steeper one: there the length alone ranks two answers of different
length, up to 10^5 tokens, and doubles still tell two sums apart where it is the same."""


@dataclass(frozen=True)
class Search:
    """What a beam search looks for.

        score = sum of log-probabilities / length ** length_penalty, the EOS counted in both

    early_stopping  False: a row ends when no open beam, at its present length, could still beat its worst finished one;
                    True: as soon as it has num_beams finished ones; "never": when none could at any length to come
    Raises `GenerationError` for what is out of range.

    Source: Sutskever et al. 2014; the length penalty and the rules for stopping are those of transformers.
    """

    num_beams: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        beams, penalty, early = self.num_beams, self.length_penalty, self.early_stopping
        ends = isinstance(early, bool) or (isinstance(early, str) and early == "never")
        checks = [
            (
                "num_beams",
                whole(beams) and 1 <= beams <= MOST_BEAMS,
                f"a whole number from 1 to {MOST_BEAMS}",
                "num_beams=4; 1 for greedy",
            ),
            ("length_penalty", finite(penalty), "a finite float", "1.0; more than that likes longer answers"),
            ("early_stopping", ends, "true, false or never", "false"),
        ]
        problems = [Problem(name, told(getattr(self, name)), rule, fix) for name, fine, rule, fix in checks if not fine]
        if problems:
            raise GenerationError(*problems)

    def score(self, sums: Tensor, length: int) -> Tensor:
        """How answers of `length` tokens rank by the sums of their log-probabilities: float64, -inf where none is.

            -log(-sum / length ** length_penalty)

        which grows as the score does, and is a number for whatever penalty.
        """
        steep = max(-_STEEP, min(_STEEP, float(self.length_penalty)))
        return steep * math.log(length) - (-sums.double()).log()

    def best_to_come(self, sums: Tensor, length: int, longest: int) -> Tensor:
        """What `score` open beams of these sums, over `length` tokens so far, may reach at last."""
        lasting = self.early_stopping == "never" and self.length_penalty > 0
        return self.score(sums, longest if lasting else length)


@dataclass
class Beams:
    """K answers of each row: tokens (B, K, N), their logprobs, scores (B, K), -inf where none is, and lengths (B, K), 0
    there; the scores of those that go on are the sums of their logprobs."""

    tokens: Tensor
    logprobs: Tensor
    scores: Tensor
    lengths: Tensor

    @classmethod
    def none(cls, batch: int, beams: int, longest: int, pad: int, device: torch.device) -> Beams:
        """No answer yet."""
        shape = (batch, beams)
        return cls(
            torch.full((*shape, longest), pad, dtype=torch.int64, device=device),
            torch.zeros(*shape, longest, device=device),
            torch.full(shape, _NEVER, device=device),
            torch.zeros(shape, dtype=torch.int64, device=device),
        )

    def picked(self, index: Tensor) -> Beams:
        """The answers number index (B, J) of each row."""
        wide = index[..., None].expand(-1, -1, self.tokens.shape[-1])  # (B, J, N)
        narrow = (self.scores.gather(1, index), self.lengths.gather(1, index))
        return Beams(self.tokens.gather(1, wide), self.logprobs.gather(1, wide), *narrow)

    def joined(self, other: Beams) -> Beams:
        """Those of both."""
        parts = ((getattr(self, name), getattr(other, name)) for name in ("tokens", "logprobs", "scores", "lengths"))
        return Beams(*(torch.cat(part, 1) for part in parts))

    def best(self, count: int) -> Beams:
        """The `count` of each row with the highest scores, the best first."""
        return self.picked(self.scores.topk(count).indices)


def search(
    step: Callable[[Tensor | None, Tensor | None], Tensor],
    asked: Search,
    batch: int,
    longest: int,
    ends: tuple[int, ...],
    pad: int,
    device: torch.device,
) -> Beams:
    """The best answer of each row, (B, 1, N): `step(ids (B K), rows (B K))` gives the log-probabilities (B K, V) of
    what follows, once the rows of the state are the former `rows` and have read `ids`; the first step reads nothing."""
    beams, stops = asked.num_beams, torch.tensor(ends, dtype=torch.int64, device=device)
    running = Beams.none(batch, beams, longest, pad, device)
    running.scores[:, 0] = 0.0  # all beams are alike at first: one of them counts
    done = Beams.none(batch, beams, longest, pad, device)
    open_rows = torch.ones(batch, 1, dtype=torch.bool, device=device)
    kept = max(2, 1 + len(ends)) * beams  # so that num_beams of them go on, even if the best all end
    offset = beams * torch.arange(batch, device=device)[:, None]
    ids = rows = None
    for number in range(longest):
        logprobs = step(ids, rows).unflatten(0, (batch, beams))  # (B, K, V)
        vocabulary = logprobs.shape[-1]
        scores, index = (running.scores[..., None] + logprobs).flatten(1).topk(min(kept, beams * vocabulary))  # (B, C)
        beam, new = index // vocabulary, index % vocabulary
        grown = running.picked(beam)
        grown.tokens[..., number], grown.scores, grown.lengths = new, scores, grown.lengths + 1
        grown.logprobs[..., number] = logprobs.flatten(1).gather(1, index)
        ended = (new[..., None] == stops).any(-1) | (number + 1 == longest)  # (B, C)
        done = _with_finished(done, grown, ended, asked, open_rows, number + 1)
        going = scores.masked_fill(ended, _NEVER).topk(beams).indices  # (B, K)
        running, ids = grown.picked(going), new.gather(1, going).flatten()  # (B K)
        running.scores = scores.masked_fill(ended, _NEVER).gather(1, going)
        rows = (beam.gather(1, going) + offset).flatten()  # (B K)
        full = (done.lengths > 0).all(1, keepdim=True)
        hope = asked.best_to_come(running.scores[:, :1], number + 1, longest)
        open_rows = open_rows & ~(hope <= done.scores.amin(1, keepdim=True))  # what is no number stays, and is told of
        if not bool((open_rows & ~(full & (asked.early_stopping is True))).any()):  # the one wait for the device
            break
    return done.best(1)


def _with_finished(done: Beams, grown: Beams, ended: Tensor, asked: Search, open_rows: Tensor, length: int) -> Beams:
    """The finished answers with those that end now among the num_beams best, in rows that still take some."""
    full = (done.lengths > 0).all(1, keepdim=True) & (asked.early_stopping is True)
    among = torch.arange(ended.shape[1], device=ended.device) < asked.num_beams
    counts = ended & among & open_rows & ~full & (grown.scores != _NEVER)  # (B, C)
    scored = grown.picked(torch.arange(ended.shape[1], device=ended.device).expand(len(ended), -1))
    scored.scores = torch.where(counts, asked.score(grown.scores, length), _NEVER)
    scored.lengths = torch.where(counts, length, 0)
    return done.joined(scored).best(asked.num_beams)


def refuse_beside(num_beams: int, knobs: dict[str, Any]) -> None:
    """Raises `GenerationError` for knobs that are set beside several beams, which draw nothing, and for too many."""
    Search(num_beams)
    problems = unfit(knobs | {"num_beams": num_beams}) if num_beams > 1 else []
    if problems:
        raise GenerationError(*problems)

"""The choice of the next token: pure functions on logits (B, V), drawing only from the generator they are given."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import Problem
from .found import finite, told, whole
from .request import GenerationError


def penalise(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """Logits (B, V) with those of the ids in `seen` (B, V, bool) lowered: l / penalty if l > 0, l * penalty if l < 0.

    Source: CTRL, Keskar et al. 2019, arXiv 1909.05858; the rule for negative logits is that of transformers.
    """
    ends = torch.finfo(logits.dtype)
    penalty = max(ends.tiny, min(ends.max, penalty))  # what the dtype holds of it, and never 0 / 0
    lowered = torch.where(logits < 0, logits * penalty, logits / penalty)
    return torch.where(seen, lowered.clamp(ends.min, ends.max), logits)


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    """Logits (B, V) with all but the k largest at -inf; of equal logits the lower ids stay; k >= V keeps all.

    Source: Fan et al. 2018, arXiv 1805.04833.
    """
    if k >= logits.shape[-1]:
        return logits
    smallest = logits.topk(k).values[:, -1:]  # (B, 1)
    above, equal = logits > smallest, logits == smallest
    # exactly k: equal logits are common in bf16, and the lowest id first is what argmax takes
    first = equal & (equal.cumsum(-1) <= k - above.sum(-1, keepdim=True))
    return logits.masked_fill(~(above | first), -math.inf)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Logits (B, V) of the smallest set of likeliest ids whose mass reaches p, the one that crosses p included.

    An id stays if the mass of the likelier ones is below p, so the likeliest always stays; p = 1 keeps all.
    Source: nucleus sampling, Holtzman et al. 2020, arXiv 1904.09751.
    """
    if p >= 1:  # the running sum may round up to 1 before the last id
        return logits
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(-1)
    drop = probs.cumsum(-1) - probs >= p
    drop[:, 0] = False  # a row never empties, whatever the rounding
    return logits.masked_fill(drop.scatter(-1, order, drop), -math.inf)  # (B, V)


def keep_min_p(logits: Tensor, p: float) -> Tensor:
    """Logits (B, V) of the ids at least p times as likely as the likeliest, the others at -inf.

    Source: Nguyen et al. 2024, arXiv 2407.01082.
    """
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p * probs.amax(-1, keepdim=True), -math.inf)


def draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """One id of each row of weights (..., V), which need not sum to 1: (...) int64.

    The exponential race draws as torch.multinomial does, whose checks wait for the GPU.
    """
    return (weights / torch.empty_like(weights).exponential_(generator=generator)).argmax(-1)


def seen_in(tokens: Tensor, mask: Tensor | None, n_rows: int) -> Tensor:
    """Which ids stand in the prompts (B, T), padding excluded: (B, V = n_rows) bool; their last token is real."""
    real = tokens if mask is None else torch.where(mask, tokens, tokens[:, -1:])  # it can stand in for padding
    return torch.zeros(len(tokens), n_rows, dtype=torch.bool, device=tokens.device).scatter_(1, real, True)  # (B, V)


@dataclass(frozen=True)
class Sampler:
    """How the next token is chosen; None switches a knob off.

    In this order, in float32: ids >= `allowed` out -> repetition penalty -> argmax if temperature is 0, whatever
    the other knobs say -> temperature -> top_k -> top_p -> min_p -> renormalise -> one draw a row.
    Raises `GenerationError` (a ValueError) listing each knob out of range.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None

    def __post_init__(self) -> None:
        t, k, p, m, r = self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty
        checks = [
            ("temperature", finite(t) and t >= 0, "a finite float >= 0", "0 for greedy, 1 for the model's own"),
            (
                "top_k",
                k is None or (whole(k) and k >= 1),
                "a whole number >= 1",
                "null to keep all, 1 for the likeliest",
            ),
            ("top_p", p is None or (finite(p) and 0 < p <= 1), "0 < top_p <= 1", "null or 1.0 to keep all"),
            ("min_p", m is None or (finite(m) and 0 <= m <= 1), "0 <= min_p <= 1", "null or 0 to keep all"),
            ("repetition_penalty", r is None or (finite(r) and r > 0), "a finite float > 0", "null or 1.0 for none"),
        ]
        problems = [Problem(name, told(getattr(self, name)), rule, fix) for name, fine, rule, fix in checks if not fine]
        if problems:
            raise GenerationError(*problems)

    def __call__(
        self,
        logits: Tensor,
        *,
        generator: torch.Generator,
        allowed: int | None = None,
        seen: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The chosen ids (B,) int64 and their log-probabilities (B,) float32 under the model.

            logprob = log softmax(logits[:allowed])[id]

        of the raw logits (B, V): what the model said, before penalty, temperature and filters. Ids >= `allowed`,
        the padded vocabulary rows, are never chosen. `seen` (B, V, bool) are the ids that the penalty lowers.
        `generator` sits on the logits' device; greedy leaves it untouched.
        """
        logits = logits.float()
        if allowed is not None and allowed < logits.shape[-1]:
            logits = logits[:, :allowed]
            seen = None if seen is None else seen[:, :allowed]
        ids = self.choose(logits, seen, generator)[0]
        return ids, logits.log_softmax(-1).gather(-1, ids[:, None])[:, 0]  # on a CPU logsumexp takes longer

    def probabilities(self, logits: Tensor, seen: Tensor | None = None) -> Tensor:
        """The distribution (B, V) a draw follows: logits (B, V) after every stage, renormalised; greedy has none."""
        logits = self._penalised(logits.float(), seen)
        # the largest becomes 0, so that no temperature, however small, overflows to inf - inf
        logits = logits - logits.amax(-1, keepdim=True)
        logits = logits / max(float(self.temperature), torch.finfo(torch.float32).tiny)
        if self.top_k is not None:
            logits = keep_top_k(logits, self.top_k)
        if self.top_p is not None:
            logits = keep_top_p(logits, float(self.top_p))
        if self.min_p is not None:
            logits = keep_min_p(logits, float(self.min_p))
        return logits.softmax(-1)

    def choose(self, logits: Tensor, seen: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """The chosen ids (B,) of logits (B, V), and the distribution (B, V) they were drawn from, None if greedy."""
        if self.temperature == 0:
            return self._penalised(logits, seen).max(-1).indices, None  # argmax takes twice as long on a CPU
        probs = self.probabilities(logits, seen)
        return draw(probs, generator), probs

    def _penalised(self, logits: Tensor, seen: Tensor | None) -> Tensor:
        if self.repetition_penalty is None or seen is None:
            return logits
        return penalise(logits, seen, float(self.repetition_penalty))


@dataclass(frozen=True)
class Chooser:
    """The choice of each token of a generation: how, from which draws, and behind which ids.

    `allowed` ids may be chosen; `seen` (B, V, bool) are those that the penalty lowers, None where there is none.
    """

    sampler: Sampler
    generator: torch.Generator
    allowed: int
    seen: Tensor | None

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The ids (B,) chosen of logits (B, V), and their log-probabilities (B,)."""
        return self.sampler(logits, generator=self.generator, allowed=self.allowed, seen=self.seen)

    def propose(self, logits: Tensor, seen: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The ids (B,) chosen of logits (B, V), the ids `seen` lowered, and the distribution drawn from if it was."""
        seen = None if seen is None else seen[:, : self.allowed]
        return self.sampler.choose(logits[:, : self.allowed].float(), seen, self.generator)

    def judge(self, logits: Tensor, ids: Tensor, drawn: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """What is chosen (B, 1 + K) of logits (B, 1 + K, V), before and behind each of the proposed ids (B, K), which
        were drawn from those K distributions (B, V); its log-probabilities; and to which proposals it agrees, (B, K).

        Each is to be used only as far as all before it agree.
        """
        logits = logits.float()
        seen, count = None, ids.shape[1]
        if self.seen is not None:
            seen = self.seen[:, None].repeat(1, count + 1, 1)  # (B, 1 + K, V)
            seen[:, 1:] |= F.one_hot(ids, seen.shape[-1]).cumsum(1).bool()
            seen = seen[..., : self.allowed].flatten(0, 1)  # (B (1 + K), V)
        if self.sampler.temperature == 0:
            chosen = self.sampler.choose(logits.flatten(0, 1), seen, self.generator)[0].view(len(ids), -1)  # (B, 1 + K)
            agreed = chosen[:, :count] == ids
        else:
            p = self.sampler.probabilities(logits.flatten(0, 1), seen).view_as(logits)  # (B, 1 + K, V)
            q = torch.stack((*drawn, torch.zeros_like(p[:, 0])), dim=1)  # (B, 1 + K, V), behind the last one nothing
            here = F.pad(ids, (0, 1))[..., None]  # (B, 1 + K, 1)
            chance = torch.empty_like(p[..., 0]).uniform_(generator=self.generator)
            taken = chance * q.gather(-1, here)[..., 0] < p.gather(-1, here)[..., 0]
            taken[:, count:] = False
            rest = (p - q).clamp_min(0)
            rest = torch.where(rest.any(-1, keepdim=True), rest, p)  # where rounding alone leaves nothing
            chosen = torch.where(taken, here[..., 0], draw(rest, self.generator))
            agreed = taken[:, :count]
        return chosen, logits.log_softmax(-1).gather(-1, chosen[..., None])[..., 0], agreed

    def note(self, ids: Tensor) -> None:
        """Counts ids (B,) or (B, N) as seen, from now on."""
        if self.seen is not None:
            self.seen.scatter_(1, ids.view(len(ids), -1), True)

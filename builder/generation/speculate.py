"""Speculative decoding: a small model proposes some tokens, and the model reads them all in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .sampling import Chooser
from .written import Written

if TYPE_CHECKING:
    from .generate import Generative

PROPOSED = 4
"""How many tokens a draft proposes at a time, where nothing says."""


class Draft:
    """A model that proposes, with a state of its own: it reads what was written, and then its own proposals."""

    def __init__(self, model: Generative, tokens: Tensor, mask: Tensor | None, more: int):
        self.model = model
        self.state = model.new_state(len(tokens), tokens.shape[1] + more)
        self.unread, self.mask = tokens, mask

    def tell(self, ids: Tensor) -> None:
        """What was written, (B, N), behind all that this one has read or been told."""
        self.unread = torch.cat((self.unread, ids), dim=1)

    def propose(self, count: int, chooser: Chooser) -> tuple[Tensor, list[Tensor]]:
        """The ids (B, K) that follow what was written, and the distributions (B, V) they were drawn from, if drawn."""
        read, mask = self.unread, self.mask
        mask = None if mask is None else F.pad(mask, (0, read.shape[1] - mask.shape[1]), value=True)
        seen, ids, drawn = chooser.seen, [], []
        for number in range(count):
            logits = self.model(read, attention_mask=mask, state=self.state, last_only=True).logits[:, -1]
            if number == 0:  # from here on it reads what may have to be taken back
                self._mark, self._ahead = self.state.mark(count - 1), count - 1
                self.unread, self.mask, mask = read[:, :0], None, None
            chosen, probs = chooser.propose(logits, seen)
            seen = None if seen is None else seen.scatter(1, chosen[:, None], True)
            ids.append(chosen)
            drawn += [] if probs is None else [probs]
            read = chosen[:, None]
        return torch.stack(ids, 1), drawn

    def settle(self, ids: Tensor) -> None:
        """Takes the ids (B, N) that were written instead of the last proposals: all of those but for the last id."""
        agreed = ids.shape[1] - 1
        kept = self._ahead if agreed >= self._ahead else self.state.rewind(self._mark, agreed)
        self.tell(ids[:, kept:])


def speculate(
    model: Generative,
    state: Any,
    logits: Tensor,
    chooser: Chooser,
    max_new_tokens: int,
    written: Written,
    draft: Draft,
    count: int,
) -> float | None:
    """Writes up to `max_new_tokens`, the first from logits (B, V); returns the share of the proposals that was used.

        draft       last -> d1 -> d2 -> d3 -> d4        one small pass each
        model       last    d1    d2    d3    d4        one pass: what it would have chosen behind each of them
        written             d1    d2    x               up to the first it would not have, and its own there

    A proposal d, drawn from q, is taken with probability min(1, p(d) / q(d)), where p is the model's distribution, both
    behind every filter; in place of one that isn't, max(0, p - q) is drawn from. What is written then follows p.

    All rows go on by as many tokens as the row that agrees least: a state has one length for all rows, and holes in it
    would count in sliding windows. What others had agreed to is proposed again; as each id follows p given those before
    it, whatever made the rows stop there, nothing is lost but time.

    Source: Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", algorithm 1.
    """
    ids, logprobs = chooser.choose(logits)
    last = written.add(ids, logprobs)[:, None]  # (B, 1)
    chooser.note(last)
    draft.tell(last)
    proposed = used = 0
    while len(written) < max_new_tokens and not (len(written) == 1 and written.ended):
        asked = min(count, max_new_tokens - len(written) - 1)
        ids, drawn = draft.propose(asked, chooser) if asked else (last[:, :0], [])  # (B, K)
        mark = state.mark(asked + 1)
        read = torch.cat((last, ids), dim=1)  # (B, 1 + K)
        logits = model(read, attention_mask=None, state=state, last_only=False).logits[..., : chooser.allowed]
        chosen, logprobs, agreed = chooser.judge(logits, ids, drawn)  # (B, 1 + K) each
        agreed = agreed | ~written.going[:, None]  # a row that has ended agrees to all
        kept = int(agreed.long().cumprod(1).sum(1).min())  # a round waits for the device here
        proposed, used = proposed + asked, used + kept
        fresh = chosen[:, : kept + 1]  # (B, N)
        for number in range(kept + 1):
            written.add(fresh[:, number], logprobs[:, number])
            if written.ended:
                return _share(used, proposed)
        chooser.note(fresh)
        last = fresh[:, -1:]
        if kept < asked:
            stayed = state.rewind(mark, kept + 1)
            if stayed <= kept:  # a layer that can't part what it has read reads again what stands
                model(read[:, stayed : kept + 1], attention_mask=None, state=state, last_only=True)
        if asked:
            draft.settle(fresh)
    return _share(used, proposed)


def _share(used: int, proposed: int) -> float | None:
    return used / proposed if proposed else None

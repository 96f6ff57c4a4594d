"""A small model with a real state, so that generation is tested without the model room."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn


class History:
    """The state: every token and mask fed so far, up to the length asked for."""

    def __init__(self, batch: int, max_length: int):
        self.max_length = max_length
        self.tokens = torch.empty(batch, 0, dtype=torch.int64)
        self.mask = torch.empty(batch, 0, dtype=torch.bool)

    def append(self, tokens: Tensor, mask: Tensor | None) -> None:
        assert len(tokens) == len(self.tokens), "the state has another batch size"
        mask = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        self.tokens = torch.cat([self.tokens, tokens], 1)
        self.mask = torch.cat([self.mask, mask], 1)
        assert self.tokens.shape[1] <= self.max_length, "more tokens than the state was asked to hold"


class Recurrent(nn.Module):
    """h <- tanh(W h + E[token] + P[count of real tokens before]), padding skipped; logits = U dropout(h).

    The position table is as long as deploy_length: one token too many is an index error. `favoured` makes the padded
    vocabulary rows (ids >= n_tokens) win wherever they may.
    """

    def __init__(self, n_tokens=23, rows=None, deploy_length=32, dropout=0.0, seed=0, favoured=False):
        super().__init__()
        self.n_tokens, self.deploy_length = n_tokens, deploy_length
        self.vocab_size = rows = rows or n_tokens
        width = 24
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.embed, self.position = nn.Embedding(rows, width), nn.Embedding(deploy_length, width)
            self.recur, self.head = nn.Linear(width, width), nn.Linear(width, rows)
            self.dropout = nn.Dropout(dropout)
            nn.init.orthogonal_(self.recur.weight)
            nn.init.normal_(self.head.weight)
        if favoured:
            self.head.bias.data[n_tokens:] = 100.0
        self.calls = []  # (T, mask given, last_only, grad enabled)

    def new_state(self, batch_size: int, max_length: int) -> History:
        self.state = History(batch_size, max_length)
        return self.state

    def forward(self, tokens, *, attention_mask=None, state=None, last_only=False):
        self.calls.append((tokens.shape[1], attention_mask is not None, last_only, torch.is_grad_enabled()))
        state = state or History(len(tokens), tokens.shape[1])
        state.append(tokens, attention_mask)
        hidden = torch.zeros(len(tokens), self.recur.in_features, dtype=self.recur.weight.dtype)
        count = torch.zeros(len(tokens), dtype=torch.int64)
        outs = []
        for token, real in zip(state.tokens.unbind(1), state.mask.unbind(1), strict=True):
            entry = self.embed(token) + self.position(count)
            hidden = torch.where(real[:, None], torch.tanh(self.recur(hidden) + entry), hidden)
            count = count + real
            outs.append(hidden)
        hidden = torch.stack(outs[-tokens.shape[1] :], 1)  # (B, T, D)
        logits = self.head(self.dropout(hidden[:, -1:] if last_only else hidden))
        return SimpleNamespace(logits=logits)


@pytest.fixture
def recurrent():
    return Recurrent

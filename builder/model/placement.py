"""Where one pass stands: its positions and its mask, from what the caller says and what the state remembers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from builder.components.position import Position
from builder.errors import ArchlabError

from .context import Aux, Context
from .mask import Mask
from .positions import Positions, count, count_real, count_within
from .state import State


class TooLong(ArchlabError, ValueError):
    """A sequence reaches past what the model holds positions for."""


def place(
    tokens: Tensor,
    *,
    real: Tensor | None,
    positions: Tensor | None,
    segments: Tensor | None,
    prefix: Tensor | None,
    state: State | None,
    causal: bool,
    schemes: Mapping[str, Position],
    aux: Aux,
) -> Context:
    """The context of a pass over tokens (B, T), as the layers share it; a state is told what this pass adds.

    Raises TooLong past the end of a scheme's table, ValueError for arguments that don't fit the tokens or the state.
    """
    _refuse_misfits(tokens, state, attention_mask=real, positions=positions, segments=segments, prefix=prefix)
    past = state.length if state is not None else 0
    end = past + tokens.shape[1]
    real = real.bool() if real is not None else None
    ids = positions if positions is not None else _count(tokens, real, segments, state)
    ids = ids if len(tokens) else ids[:0]  # a batch of no rows, whose shapes alone are asked for, stands nowhere
    _refuse_past_the_end(ids, end, positions is None, schemes)
    if state is not None:
        state.write(ids, real)
        real = None if state.real is None else state.real[:, :end]
    slots = state.max_length if state is not None else end
    own = Positions(ids, slots if real is None else slots - (~real).sum(1))  # a pad takes a slot and is no token
    keys = Positions(state.positions[:, :end], own.reach) if state is not None and past else own
    if prefix is not None and past:  # what was read before stands behind no token of this pass
        prefix = torch.cat((prefix.new_zeros(len(prefix), past), prefix), dim=1)  # (B, L)
    between = real is not None and (state is None or state.gapped)  # padding may stand between real tokens
    counted = real.cumsum(1) if real is not None and between else None
    mask = Mask(causal=causal, prefix=prefix, real=real, segments=segments, counted=counted, past=past)
    return Context(own, keys, mask, schemes["model"], aux=aux)


def _count(tokens: Tensor, real: Tensor | None, segments: Tensor | None, state: State | None) -> Tensor:
    """The default positions of this pass, (B, T) or (1, T)."""
    if segments is not None:
        return count_within(segments, real)
    past = state.length if state is not None else 0
    counted = state.counted if state is not None else None
    if real is None and counted is None:
        return count(tokens.shape[1], past, tokens.device)
    if counted is None:
        counted = torch.full(tokens.shape[:1], past, device=tokens.device)
    return count_real(torch.ones_like(tokens, dtype=torch.bool) if real is None else real, counted)


_TOLD = ("attention_mask", "prefix")
"""The arguments that say of each token whether something holds."""


def _refuse_misfits(tokens: Tensor, state: State | None, **given: Tensor | None) -> None:
    if tokens.ndim != 2 or not tokens.shape[1] or tokens.is_floating_point():
        found = f"tokens have shape {tuple(tokens.shape)} and dtype {tokens.dtype}"
        raise ValueError(f"{found}; give int64 ids (B, T), at least one token a row")
    for name, argument in given.items():
        if argument is not None and argument.is_floating_point():
            rule = "bool or integers: what is not 0 is true" if name in _TOLD else "integers"
            raise ValueError(f"{name} has dtype {argument.dtype}; give {rule}")
        if argument is not None and argument.shape != tokens.shape:
            found = f"{name} has shape {tuple(argument.shape)} and the tokens of this pass {tuple(tokens.shape)}"
            raise ValueError(f"{found}; give it one entry for each token of this pass, not for those in the state")
    if state is not None and given["segments"] is not None:
        raise ValueError("segments: a state holds one document a row; prefill packed rows without a state")
    if state is not None:
        state.refuse_misfit(tokens)


def _refuse_past_the_end(ids: Tensor, slots: int, counted: bool, schemes: Mapping[str, Position]) -> None:
    """Positions that were counted reach the number of slots at most: only past that are they looked at."""
    for slot, scheme in schemes.items():
        if scheme.limit is None or (counted and slots <= scheme.limit) or not ids.numel():
            continue
        reach = int(ids.max()) + 1
        if reach > scheme.limit:
            where = "model.position" if slot == "model" else f"model.{slot}.position"
            raise TooLong(
                f"{where}: a sequence of {reach} tokens, but the table holds {scheme.limit} positions; "
                f"give at most {scheme.limit} tokens, or train a model with a longer table"
            )

"""What keeps experts evenly loaded: losses on the router, each told for one layer, and the pull on its choices."""

from __future__ import annotations

from pydantic import NonNegativeFloat, model_validator
from torch import Tensor

from builder.component import refuse
from builder.section import Section

from .dispatch import count


class Balance(Section):
    """How much each term weighs in the training loss of every layer with experts; layers are added up.

    aux_loss         X sum_e f_e p_e: 1 when even, X / k at worst (chapter 3.9; Switch trains with 0.01)
    z_loss           mean (log sum_e exp l_e)^2, keeps logits small (Zoph et al. 2022: 0.001)
    sequence_loss    the aux loss of each sequence by itself, in the mean (DeepSeek-V3: 0.0001)
    bias_speed       no loss: once a step each expert's preference moves by so much to where fewer tokens went
                     (Wang et al. 2024; DeepSeek-V3: 0.001)
    """

    aux_loss: NonNegativeFloat = 0.0
    z_loss: NonNegativeFloat = 0.0
    sequence_loss: NonNegativeFloat = 0.0
    bias_speed: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _something_balances(self):
        if not (self.aux_loss or self.sequence_loss or self.bias_speed):
            rule = "nothing here balances: aux_loss, sequence_loss or bias_speed must be above 0"
            refuse("aux_loss", self.aux_loss, rule, "aux_loss=0.01, or balance=false if none is wanted")
        return self


def aux_loss(
    probabilities: Tensor,
    chosen: Tensor,
    real: Tensor | None,
    counts: Tensor | None = None,
    tokens: Tensor | None = None,
) -> Tensor:
    """X sum_e f_e p_e of one layer, a scalar: 1 when tokens are spread evenly (chapter 3.9).

    f_e is the share of all choices (N, k) that fall on expert e, p_e its mean probability (N, X); padding, where
    real (N,) is false, is in neither. No gradient passes through f. With `counts` (X,) the choices
    are those of a whole batch, of which these tokens are a part (Qiu et al. 2025, "Demons in the Detail").
    """
    n_experts = probabilities.shape[-1]
    counts = count(chosen.flatten(), n_experts) if counts is None else counts
    share = counts.to(probabilities.dtype)
    return n_experts * (share / share.sum().clamp_min(1) * mean_over_real(probabilities, real)).sum()


def z_loss(logits: Tensor, real: Tensor | None) -> Tensor:
    """mean (log sum_e exp l_e)^2 over the real tokens of logits (N, X), a scalar (Zoph et al. 2022, "ST-MoE")."""
    return mean_over_real(logits.logsumexp(-1).square()[:, None], real).sum()


def sequence_loss(
    probabilities: Tensor, chosen: Tensor, real: Tensor | None, sequences: int, of: Tensor | None = None
) -> Tensor:
    """The mean over sequences of X sum_e f_e p_e, f and p of one sequence (DeepSeek-AI 2024, "DeepSeek-V3", 2.1.2).

    The N tokens are those of `sequences` rows, one after the other; a row of padding alone is no sequence. What the sum
    over sequences is divided by is how many there are, or `of`, for a part of a batch.
    """
    n_experts = probabilities.shape[-1]
    rows = chosen.unflatten(0, (sequences, -1)).flatten(1)  # (B, T k)
    share = probabilities.new_zeros(sequences, n_experts + 1).scatter_add(1, rows, probabilities.new_ones(rows.shape))
    share = share[:, :-1] / share[:, :-1].sum(-1, keepdim=True).clamp_min(1)  # (B, X)
    masked = probabilities if real is None else probabilities * real[:, None]
    total = masked.unflatten(0, (sequences, -1)).sum(1)  # (B, X)
    length = total.new_full((), len(probabilities) // sequences) if real is None else real.view(sequences, -1).sum(1)
    each = n_experts * (share * total / length.clamp_min(1).view(-1, 1)).sum(-1)  # (B,)
    if of is None and real is None:
        return each.mean()
    return each.sum() / ((length > 0).sum().clamp_min(1) if of is None else of)


def mean_over_real(values: Tensor, real: Tensor | None) -> Tensor:
    """The mean of values (N, ...) over tokens that are no padding; 0 where there is none."""
    if real is None:
        return values.mean(0)
    return (values * real[:, None]).sum(0) / real.sum().clamp_min(1)

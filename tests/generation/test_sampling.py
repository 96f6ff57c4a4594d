"""Sampling on hand-made distributions, and against transformers' processors as the oracle."""

import math
from fractions import Fraction

import pytest
import torch
from transformers.generation import logits_process as hf

from builder.errors import ArchlabError
from builder.generation.sampling import Sampler, keep_min_p, keep_top_k, keep_top_p, penalise

C22 = torch.tensor([[0.1, 2.0, 1.9, -1.0]])
C23 = [0.05, 0.5, 0.15, 0.3]  # p = [.5, .3, .15, .05] shuffled
PLACE = [1, 3, 2, 0]  # where the n-th likeliest stands


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def draws(sampler, logits, n, seed=0, **kwargs):
    return sampler(logits.expand(n, -1), generator=seeded(seed), **kwargs)[0]


def rows(seed=0, batch=16, width=50, scale=3.0):
    return torch.randn(batch, width, generator=seeded(seed)) * scale


# C22


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "knobs", [{}, {"top_p": 1.0}, {"top_p": 0.5, "top_k": 3}, {"min_p": 0.0}, {"top_k": 4, "min_p": 0.1}]
)
def test_c22_temperature_0_is_greedy_whatever_else_is_set(knobs, dtype):
    for seed in range(100):
        ids, _ = Sampler(temperature=0.0, **knobs)(C22.to(dtype), generator=seeded(seed))
        assert ids.tolist() == [1]


def test_c22_negative_control_temperature_1_does_sample():
    assert set(draws(Sampler(temperature=1.0, top_p=1.0), C22, 200).tolist()) >= {0, 1, 2}


def test_c22_top_k_of_1_is_greedy():
    assert set(draws(Sampler(temperature=1.0, top_k=1), C22, 200).tolist()) == {1}


def test_c22_top_k_above_the_vocabulary_is_no_top_k():
    free, capped = Sampler(temperature=1.0), Sampler(temperature=1.0, top_k=99)
    assert torch.equal(draws(free, C22, 500), draws(capped, C22, 500))


@pytest.mark.parametrize(
    ("knob", "value"),
    [("temperature", v) for v in (-1.0, math.nan, math.inf, "1.0", None, True)]
    + [("top_k", v) for v in (0, -3, 2.5, True)]
    + [("top_p", v) for v in (0, 0.0, -0.1, 1.5, math.nan)]
    + [("min_p", v) for v in (-0.1, 1.5, math.nan)]
    + [("repetition_penalty", v) for v in (0, 0.0, -1.0, math.inf, math.nan)],
)
def test_c22_a_knob_out_of_range_is_refused_by_name_and_value(knob, value):
    with pytest.raises(ValueError, match=f"{knob}: found {value!r}\n *rule: .+\n *fix: ") as caught:
        Sampler(**{knob: value})
    assert isinstance(caught.value, ArchlabError)


def test_every_bad_knob_is_reported_at_once():
    with pytest.raises(ValueError, match=r"(?s)temperature.*top_k.*top_p.*min_p.*repetition_penalty"):
        Sampler(temperature=-1, top_k=0, top_p=0, min_p=2, repetition_penalty=0)


def test_the_ends_of_the_ranges_are_allowed():
    Sampler(temperature=0, top_k=1, top_p=1, min_p=0, repetition_penalty=1)
    with pytest.raises(ArchlabError, match="a finite float"):
        Sampler(temperature=10**400)
    Sampler(temperature=5, min_p=1.0, top_p=1e-9, repetition_penalty=0.5)


def test_greedy_obeys_the_repetition_penalty():
    seen = torch.tensor([[False, True, False, False]])
    ids, _ = Sampler(repetition_penalty=1.5)(C22, generator=seeded(), seen=seen)
    assert ids.tolist() == [2]


# C23


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("knobs", "kept"),
    [
        ({"top_p": 0.6}, 2),
        ({"top_p": 0.85}, 3),
        ({"top_p": 1e-8}, 1),
        ({"top_p": 1.0}, 4),
        ({}, 4),
        ({"top_k": 2, "top_p": 0.55}, 1),  # top_k first: .5 / .8 reaches .55; the other way round two stay
        ({"top_p": 0.55}, 2),
        ({"top_k": 3}, 3),
        ({"min_p": 0.4}, 2),  # at least .2
        ({"min_p": 1.0}, 1),
        ({"top_p": 0.85, "min_p": 0.5}, 2),
    ],
)
def test_c23_what_is_kept_is_drawn_in_proportion(knobs, kept, dtype):
    logits = torch.tensor([C23]).log().to(dtype)
    ids = draws(Sampler(temperature=1.0, **knobs), logits, 20_000)
    found = torch.bincount(ids, minlength=4) / len(ids)
    expected = torch.zeros(4)
    for place in PLACE[:kept]:
        expected[place] = C23[place]
    expected /= expected.sum()
    assert torch.equal(found > 0, expected > 0)
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0)


def test_c23_top_p_is_undone_from_sorting_in_every_row():
    perms = torch.stack([torch.randperm(4, generator=seeded(s)) for s in range(8)])
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()[perms]
    assert torch.equal(keep_top_p(logits, 0.6).isfinite(), perms < 2)


@pytest.mark.parametrize("p", [1e-8, 5e-324])  # the second is 0 in float32
def test_top_p_never_empties_a_wide_flat_row(p):
    kept = keep_top_p(torch.zeros(3, 100_000), p).isfinite().sum(-1)
    assert kept.tolist() == [1, 1, 1]


def test_top_p_in_bf16_is_filtered_in_float32():
    # 1000 equal logits: a bf16 running sum of 1/1000 stalls long before .9, and all would stay
    probs = Sampler(temperature=1.0, top_p=0.9).probabilities(torch.zeros(1, 1000, dtype=torch.bfloat16))
    assert abs(int((probs > 0).sum()) - 900) <= 1


def test_temperature_comes_before_top_p():
    logits = torch.tensor([C23]).log()  # at temperature .5 the likeliest holds .25 / .365 = .68
    assert set(draws(Sampler(temperature=0.5, top_p=0.6), logits, 500).tolist()) == {1}


def test_temperature_sharpens_as_a_power_of_the_probabilities():
    expected = torch.tensor([C23]) ** 2
    found = Sampler(temperature=0.5).probabilities(torch.tensor([C23]).log())
    torch.testing.assert_close(found, expected / expected.sum())


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-45, 5e-324])
def test_the_smallest_temperatures_are_greedy_and_finite(temperature):
    logits = torch.tensor([[-300.0, 200.0, 199.0]])
    assert set(draws(Sampler(temperature=temperature), logits, 50).tolist()) == {1}


@pytest.mark.parametrize("penalty", [5e-324, 1e-300, 1e300, Fraction(1, 2)], ids=str)
def test_the_ends_of_the_penalty_are_numbers_and_keep_the_order(penalty):
    logits = torch.tensor([[0.0, 1.0, -1.0, 2.0]])
    assert penalise(logits, torch.ones(1, 4, dtype=torch.bool), float(penalty)).isfinite().all()
    found = draws(Sampler(repetition_penalty=penalty), logits, 1, seen=torch.ones(1, 4, dtype=torch.bool))
    assert found.tolist() == [3]


def test_top_k_keeps_exactly_k_of_equal_logits_lowest_id_first():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0]])
    assert keep_top_k(logits, 3).isfinite().tolist() == [[False, True, True, True, False]]
    assert keep_top_k(torch.zeros(1, 9), 1).isfinite().nonzero().tolist() == [[0, 0]]  # what argmax takes


# oracles


@pytest.mark.parametrize("k", [1, 2, 7, 49, 50, 80])
def test_top_k_agrees_with_transformers(k):
    assert torch.equal(keep_top_k(rows(), k), hf.TopKLogitsWarper(top_k=k)(None, rows()))


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.9, 0.99, 1.0])
def test_top_p_agrees_with_transformers(p):
    assert torch.equal(keep_top_p(rows(1), p), hf.TopPLogitsWarper(top_p=p)(None, rows(1)))


@pytest.mark.parametrize("p", [0.0, 0.01, 0.1, 0.5, 1.0])
def test_min_p_agrees_with_transformers(p):
    assert torch.equal(keep_min_p(rows(2), p), hf.MinPLogitsWarper(min_p=p)(None, rows(2)))


@pytest.mark.parametrize("penalty", [0.7, 1.0, 1.3, 5.0])
def test_repetition_penalty_agrees_with_transformers(penalty):
    ids = torch.randint(50, (16, 12), generator=seeded(3))
    seen = torch.zeros(16, 50, dtype=torch.bool).scatter_(1, ids, True)
    found = penalise(rows(3), seen, penalty)
    assert torch.equal(found, hf.RepetitionPenaltyLogitsProcessor(penalty)(ids, rows(3)))
    assert torch.equal(found, rows(3)) is (penalty == 1.0)


def test_the_whole_chain_agrees_with_transformers():
    ids = torch.randint(50, (16, 12), generator=seeded(4))
    expected = rows(4)
    for step in (
        hf.RepetitionPenaltyLogitsProcessor(1.2),
        hf.TemperatureLogitsWarper(0.8),
        hf.TopKLogitsWarper(top_k=20),
        hf.TopPLogitsWarper(top_p=0.9),
        hf.MinPLogitsWarper(min_p=0.05),
    ):
        expected = step(ids, expected)
    seen = torch.zeros(16, 50, dtype=torch.bool).scatter_(1, ids, True)
    sampler = Sampler(temperature=0.8, top_k=20, top_p=0.9, min_p=0.05, repetition_penalty=1.2)
    found = sampler.probabilities(rows(4), seen)
    assert torch.equal(found > 0, expected.isfinite())
    torch.testing.assert_close(found, expected.softmax(-1))


# padded vocabulary rows, log-probabilities, randomness


@pytest.mark.parametrize(
    "knobs", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 99}, {"repetition_penalty": 9.0}]
)
def test_padded_vocabulary_rows_are_never_chosen(knobs):
    logits = torch.tensor([[0.1, 2.0, 1.9, -1.0, 50.0, math.inf, math.nan]])
    seen = torch.zeros(100, 7, dtype=torch.bool)
    assert int(draws(Sampler(**knobs), logits, 100, allowed=4, seen=seen).max()) < 4
    control = draws(Sampler(**knobs), logits[:, :5], 100, seen=seen[:, :5])  # unrestricted, the padded row wins
    assert set(control.tolist()) == {4}


def test_padded_rows_take_no_part_in_the_filters():
    logits = torch.tensor([[0.1, 2.0, 1.9, -1.0, 9.0, 8.0]])
    for knobs in ({"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.5}):
        sampler = Sampler(temperature=1.0, **knobs)
        assert set(draws(sampler, logits, 200, allowed=4).tolist()) == {1, 2}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("allowed", [None, 30, 50, 64])
@pytest.mark.parametrize("knobs", [{}, {"temperature": 0.7, "top_k": 5, "repetition_penalty": 2.0}])
def test_logprobs_are_those_of_the_raw_logits_over_the_allowed_ids(knobs, allowed, dtype):
    logits, seen = rows(5).to(dtype), rows(6) > 0
    ids, logprobs = Sampler(**knobs)(logits, generator=seeded(), allowed=allowed, seen=seen)
    expected = logits.double()[:, :allowed].log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    assert (ids.dtype, logprobs.dtype) == (torch.int64, torch.float32)
    torch.testing.assert_close(logprobs, expected.float())


def test_draws_come_from_the_given_generator_alone():
    sampler, logits = Sampler(temperature=1.0, top_p=0.9), rows(7)
    before = torch.get_rng_state()
    first, again, other = (sampler(logits, generator=seeded(s))[0] for s in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_logits_and_seen_are_left_as_they_were():
    logits, seen = rows(8), rows(9) > 0
    Sampler(temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, repetition_penalty=2.0)(
        logits, generator=seeded(), allowed=40, seen=seen
    )
    assert torch.equal(logits, rows(8)) and torch.equal(seen, rows(9) > 0)

"""The verdict of every scheme on its two lengths: trained beyond, at, and below what is deployed."""

import pytest
import torch

from builder import registry
from builder.components.scaling import unscaled
from builder.finding import Status

SAFE = dict.fromkeys(("alibi", "learned", "none", "rope", "sinusoidal", "t5"), "PASS")
BEYOND = {"alibi": "PASS", "learned": "FAIL", "none": "PASS", "rope": "WARN", "sinusoidal": "WARN", "t5": "WARN"}


@pytest.fixture
def verdict(config, site):
    def judge(name, train, deploy, causal=True, d_model=32, **knobs):
        chosen = config("position", name, **knobs)
        place = site(train_length=train, deploy_length=deploy, causal=causal, d_model=d_model)
        return list(chosen.component.check(chosen, place))

    return judge


@pytest.mark.parametrize("name", registry.names("position"))
@pytest.mark.parametrize(("train", "deploy"), [(32, 16), (32, 32), (16, 32)])
def test_every_scheme_states_a_verdict_in_its_section(verdict, name, train, deploy):
    findings = verdict(name, train, deploy)
    assert findings and all(finding.section == 3 and finding.rule for finding in findings)
    assert all(finding.status is not Status.UNKNOWN for finding in findings)
    assert all(finding.fix for finding in findings if finding.status is not Status.PASS)


@pytest.mark.parametrize("name", SAFE)
@pytest.mark.parametrize(
    ("train", "deploy", "expected"), [(32, 16, SAFE), (32, 32, SAFE), (32, 33, BEYOND), (16, 32, BEYOND)]
)
def test_the_verdict_per_scheme(verdict, name, train, deploy, expected):
    (finding,) = verdict(name, train, deploy)
    assert finding.status == expected[name]
    assert str(train) in finding.found and str(deploy) in finding.found


def test_a_table_shorter_than_training_fails(verdict):
    (finding,) = verdict("learned", 32, 32, length=31)
    assert finding.status is Status.FAIL and "31" in finding.found and "32" in finding.fix
    (finding,) = verdict("learned", 32, 32, length=32)
    assert finding.status is Status.PASS


def test_a_table_longer_than_training_is_not_trained_past_it(verdict):
    (finding,) = verdict("learned", 32, 64, length=64)
    assert finding.status is Status.FAIL
    (finding,) = verdict("learned", 64, 64, length=128)
    assert finding.status is Status.PASS


def test_sines_need_an_even_width(verdict):
    assert Status.FAIL in [finding.status for finding in verdict("sinusoidal", 32, 32, d_model=33)]
    assert [finding.status for finding in verdict("sinusoidal", 32, 32, d_model=34)] == [Status.PASS]


def test_no_positions_and_no_mask_know_no_order(verdict):
    (finding,) = verdict("none", 32, 32, causal=False)
    assert finding.status is Status.FAIL


@pytest.mark.parametrize(
    ("train", "deploy", "knobs", "expected"),
    [
        (32, 32, {}, "WARN"),  # nothing to stretch for
        (32, 128, {}, "WARN"),  # training is divided by the factor too
        (32, 128, {"original_length": 32}, "PASS"),  # the length of an earlier training
        (32, 128, {"original_length": 64}, "WARN"),  # half of which this one sees
        (32, 128, {"name": "dynamic"}, "PASS"),
        (32, 129, {"name": "dynamic"}, "WARN"),
        (32, 129, {"original_length": 32}, "WARN"),
        (128, 128, {"original_length": 32}, "PASS"),  # trained so scaled
        (256, 256, {"original_length": 32}, "PASS"),
        (32, 64, {"original_length": 8}, "WARN"),
    ],
)
def test_the_verdict_on_scaled_frequencies(verdict, train, deploy, knobs, expected):
    (finding,) = verdict("rope", train, deploy, scaling={"name": "yarn", "factor": 4.0, **knobs})
    assert finding.status == expected and finding.path == "scaling"
    assert knobs.get("name", "yarn") in finding.found and str(deploy) in finding.found


@pytest.mark.parametrize("name", registry.names("scaling"))
def test_a_scaling_says_whether_it_waits_until_the_original_length_is_passed(config, site, name):
    lists = {"short_factor": (1.0, 1.0), "long_factor": (8.0, 8.0)} if name == "longrope" else {}
    kind = config("scaling", name, factor=8.0, **lists)
    made, cpu = kind.component(kind, site(train_length=16)), torch.device("cpu")
    within, beyond = (torch.equal(made.frequencies(1e4, 4, reach, cpu), unscaled(1e4, 4, cpu)) for reach in (16, 64))
    assert within == made.waits and not beyond


def test_sides_that_are_not_told_apart_are_warned_of(verdict):
    (finding,) = verdict("alibi", 32, 32, causal=False)
    assert finding.status is Status.WARN and "|q - k|" in finding.rule


def test_buckets_that_training_fills_serve_any_length(verdict):
    (finding,) = verdict("t5", 32, 64, max_distance=31)
    assert finding.status is Status.PASS
    (finding,) = verdict("t5", 32, 64, max_distance=32)
    assert finding.status is Status.WARN


@pytest.mark.parametrize(("n_buckets", "fails"), [(32, False), (4, False), (7, True), (2, True)])
def test_two_directions_share_the_buckets_evenly(verdict, n_buckets, fails):
    found = verdict("t5", 32, 32, causal=False, n_buckets=n_buckets)
    assert (Status.FAIL in [finding.status for finding in found]) == fails
    assert Status.FAIL not in [finding.status for finding in verdict("t5", 32, 32, n_buckets=n_buckets)]

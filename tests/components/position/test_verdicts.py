"""The verdict of every scheme on its two lengths: trained beyond, at, and below what is deployed."""

import pytest

from builder import registry
from builder.finding import Status

SAFE = {"learned": "PASS", "none": "PASS", "rope": "PASS", "sinusoidal": "PASS"}
BEYOND = {"learned": "FAIL", "none": "PASS", "rope": "WARN", "sinusoidal": "WARN"}


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

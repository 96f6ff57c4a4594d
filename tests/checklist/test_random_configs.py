"""Random configs over everything there is: what passes trains and generates, what is refused is mended by its fix."""

import json
import os
import re
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from builder.compose import compose

from . import claims, remedies, strategies
from .knobs import OWN_SHARDS, TOO_SLOW
from .sources import Sources

SEED = int(os.environ.get("ARCHLAB_SEED", "0"))
"""Other configs for another number."""

PROSE = (
    r"=\.\.\.", r"=<", r"^e\.g\. ", r"^define ", r"^another ", r"^a ", r"^the ", r"^$", r"more text",
)  # fmt: skip
"""What a fix may say that can't be done to a config by itself: that somebody must give a value, or mend a file."""


@pytest.fixture(scope="module")
def base():
    return compose(["trainer=cpu", "logger=none"])


@pytest.fixture(scope="module")
def counts(pytestconfig):
    """How often each outcome came, printed at the end of all tests here."""
    counted: Counter[str] = Counter()
    yield counted
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
    if reporter is None or not counted:
        return
    told = ", ".join(f"{count} {outcome}" for outcome, count in counted.items())
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        reporter.ensure_newline()
        reporter.write_line(f"random configs of seed {SEED}: {told}")


class Lawsuit:
    """Takes one config through everything that is claimed, and counts what came of it."""

    def __init__(self, folder: Path, counts: Counter[str], thorough: bool):
        self.folder, self.counts, self.thorough = folder, counts, thorough

    def __call__(self, config: dict) -> None:
        config = json.loads(json.dumps(config))
        try:
            self._try(config)
        except Exception as error:
            error.add_note(f"the config: {json.dumps(config)}")
            raise

    def _try(self, config: dict) -> None:
        verdict = remedies.judged(config, self.folder, probes=self.thorough, trains=self.thorough)
        if not verdict.told and not self.thorough:
            verdict = remedies.judged(config, self.folder)  # the probes too, of what passes without them
        if not verdict.told:
            claims.hold(verdict, self.folder)
            self.counts["passed, trained, generated and saved"] += 1
            return
        self.counts[f"refused by {verdict.by}"] += 1
        for told in verdict.told:
            self._mend(told, config)

    def _mend(self, told: remedies.Told, config: dict) -> None:
        assert not told.rule.startswith("a component failed"), f"{told.path}: {told.found}"
        applied = 0
        for changed in remedies.remedies(told, config):
            after = remedies.judged(changed, self.folder, probes=False, trains=False)
            left = [each for each in after.told if each.key == told.key]
            assert not left, f"{told.path}: found {told.found}; {told.fix} leaves it: found {left[0].found}"
            applied += 1
            if not self.thorough:
                break
        self.counts["fixes applied"] += applied
        if not applied:
            assert any(re.search(form, told.fix) for form in PROSE), f"{told.path}: nothing can be done by {told.fix!r}"
            self.counts["fixes in words"] += 1


def _run(count: int, lawsuit: Lawsuit, sources: Sources, base: dict) -> None:
    @seed(SEED)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    @given(strategies.configs(sources, base))
    def judge(config: dict) -> None:
        lawsuit(config)

    judge()


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("sources"), TOO_SLOW + OWN_SHARDS)


def test_what_passes_trains_and_what_is_refused_is_mended(tmp_path, counts, sources, base):
    _run(100, Lawsuit(tmp_path, counts, thorough=False), sources, base)
    assert counts["passed, trained, generated and saved"] >= 25 and counts["fixes applied"] >= 30


@pytest.mark.slow
def test_two_thousand_pass_or_are_mended(tmp_path, counts, sources, base):
    _run(2000, Lawsuit(tmp_path, counts, thorough=True), sources, base)

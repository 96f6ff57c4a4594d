"""Leaves the probes of the checklist out of the runs that these tests train."""

import pytest

from tests.tiny_run import without_probes


@pytest.fixture(autouse=True)
def no_probes(monkeypatch: pytest.MonkeyPatch):
    without_probes(monkeypatch)

"""A sweep of the tiny run, run in the process of the test."""

import sys

import pytest

from builder.cli import main
from recipes import train
from tests.tiny_run import overrides


@pytest.fixture
def sweep(tmp_path, monkeypatch, capfd):
    """Runs a sweep of the tiny run in this process; gives (exit code, what it printed)."""

    def run(*words: str, tiny: bool = True) -> tuple[int, str]:
        typed = [*(overrides(tmp_path) if tiny else ()), *words]
        monkeypatch.setattr(sys, "argv", ["train", "-m", *typed])
        code = 0
        try:
            main(train.job, "train")
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capfd.readouterr()
        return code, out + err

    return run

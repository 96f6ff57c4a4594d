"""The command: `recipes.check coordinates=[...]`, its picture, table and exit codes."""

import json
import sys

import pytest

from builder.cli import main
from recipes import check
from tests.coordinates.conftest import MUP, SIZES
from tests.tiny_run import overrides

ASKED = ["probes=false", "optimizer.lr=4e-3", "coordinates=[16,64]"]


@pytest.fixture
def call(tmp_path, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["check", *overrides(tmp_path, *SIZES, *words)])
        try:
            main(check.job, "check")
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return run


def test_what_keeps_its_sizes_passes(call, tmp_path, capsys):
    assert call(*ASKED, *MUP) == 0
    out = capsys.readouterr().out
    assert "PASS  logits" in out and f"the picture is {tmp_path}/out/coordinates.png" in out
    assert (tmp_path / "out" / "coordinates.png").is_file()


def test_what_grows_fails_and_is_drawn(call, tmp_path, capsys):
    assert call(*ASKED) == 1
    said = capsys.readouterr()
    assert "FAIL  logits" in said.out and "the coordinate check fails at" in said.err and "logits" in said.err
    assert (tmp_path / "out" / "coordinates.png").is_file()


def test_as_json(call, tmp_path, capsys):
    assert call(*ASKED, *MUP, "format=json") == 0
    said = json.loads(capsys.readouterr().out)["coordinates"]
    assert said["ok"] and said["widths"] == [16, 64]
    assert said["picture"] == f"{tmp_path}/out/coordinates.png"
    assert {"what", "layer", "status", "sizes", "moves", "why"} == said["quantities"][0].keys()


def test_nothing_is_trained_unasked_or_after_a_fail(call, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(check, "measure", lambda *_, **__: pytest.fail("copies were trained"))
    assert call("probes=false") == 0
    assert "Coordinates" not in capsys.readouterr().out
    assert call(*ASKED, "model.deploy_length=512", "model/position=learned") == 1
    assert "the checklist fails at" in capsys.readouterr().err
    assert call("probes=false", "coordinates=[16,40]") == 1
    assert "multiples of 16" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()

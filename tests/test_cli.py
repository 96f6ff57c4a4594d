"""A command answers a wrong config with one clear message and exit code 1, in a sweep for each job; nothing is left."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder import cli
from builder.errors import ArchlabError
from builder.finding import SECTIONS
from builder.load import load
from recipes import check

ROOT = Path(__file__).parents[1]
# A model that is checked in no time.
SMALL = ["d_model=32", "n_layers=2", "train_length=16", "deploy_length=16", "attention.n_heads=4", "ffn.d_ff=64"]
Command = Callable[..., int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs a job as its command would, in an empty folder; gives the exit code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path.parent / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run(job: cli.Job, config_name: str, *arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["command", *arguments])
        try:
            cli.main(job, config_name)
        except SystemExit as stop:
            return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return 0

    return run


@pytest.fixture
def jobs() -> tuple[list[dict[str, Any]], cli.Job]:
    """The configs of the jobs that loaded, and a job that keeps its config."""
    ran: list[dict[str, Any]] = []

    def job(config: dict[str, Any]) -> None:
        ran.append(load(config).to_dict())

    return ran, job


def test_a_right_command_runs_its_job(command: Command, jobs: Any, capsys: pytest.CaptureFixture[str]):
    ran, job = jobs
    assert command(job, "train", "model.n_layers=2") == 0
    assert [config["model"]["n_layers"] for config in ran] == [2] and ran[0]["output"]["name"] is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.n_headz=8", "model.n_headz: found 8"),
        ("optimizer.lr=abc", "optimizer.lr: found 'abc'"),
        ("model/norm=rmsnormm", "layernorm"),
        ("a=[", "a=["),
        ("model.d_model=${nope}", "nope"),
        ("data=text", "data.path"),
    ],
)
def test_a_wrong_command_says_why_and_leaves_nothing(
    override: str, said: str, command: Command, jobs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    ran, job = jobs
    assert command(job, "train", override) == 1
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and said in err
    assert "Traceback" not in out + err and out == ""
    assert ran == [] and not list(tmp_path.iterdir())


def test_an_error_has_its_own_exit_code(command: Command):
    class Stopped(ArchlabError):
        exit_code = 130

    def job(config: dict[str, Any]) -> None:
        raise Stopped("stopped")

    assert command(job, "train") == 130


def test_a_fault_of_the_code_keeps_its_traceback(command: Command):
    def job(config: dict[str, Any]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command(job, "train")


def test_hydras_own_sweep_runs_what_is_right_and_reports_each_wrong_job(
    command: Command, jobs: Any, capsys: pytest.CaptureFixture[str]
):
    ran, job = jobs
    words = ("hydra/sweeper=basic", "output.experiment=many", "model/norm=layernorm")
    assert command(job, "train", "model.n_layers=1,0,-1,2", "-m", *words) == 1
    assert [config["model"]["n_layers"] for config in ran] == [1, 2]
    sweep, number = zip(*(config["output"]["name"].split("/") for config in ran), strict=True)
    assert number == ("0", "3") and len(set(sweep)) == 1 and sweep[0]
    assert all(config["output"]["experiment"] == "many" for config in ran)
    assert all(config["model"]["norm"]["name"] == "layernorm" for config in ran)
    err = capsys.readouterr().err
    assert err.startswith("error: ") and "Traceback" not in err
    assert "model.n_layers: found 0" in err and "model.n_layers: found -1" in err


def test_hydra_leaves_what_it_would_print_to_the_command(
    command: Command, jobs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "own.yaml").write_text("# @package _global_\nmodel:\n\td_model: 64\n")
    assert command(jobs[1], "train", f"--config-dir={tmp_path}", "experiment=own") == 1
    out, err = capsys.readouterr()
    assert err.startswith("error: ") and "own.yaml, line 3" in err and "Traceback" not in out + err


def test_a_right_sweep_over_groups_exits_0(command: Command, jobs: Any):
    ran, job = jobs
    assert command(job, "train", "--multirun", "model/position=rope,none", "hydra/sweeper=basic") == 0
    assert [config["model"]["position"]["name"] for config in ran] == ["rope", "none"]
    assert [config["output"]["name"].rpartition("/")[2] for config in ran] == ["0", "1"]


def test_a_sweep_of_another_job_is_hydras(command: Command):
    ran: list[int] = []
    assert command(lambda config: ran.append(config["seed"]), "check", "-m", "seed=3,4") == 0
    assert ran == [3, 4]


def test_a_sweep_over_a_config_without_output_runs(command: Command):
    prompts: list[str] = []
    assert command(lambda config: prompts.append(config["prompt"]), "generate", "-m", "run=x", "prompt=a,b") == 0
    assert prompts == ["a", "b"]


def test_the_config_can_be_printed(command: Command, jobs: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    ran, job = jobs
    assert command(job, "train", "--cfg", "job", "model.d_model=64") == 0
    out = capsys.readouterr().out
    assert "d_model: 64" in out and ran == [] and not list(tmp_path.iterdir())


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Overrides of a run on a short text, which lies outside the folder that the command runs in."""
    text = tmp_path.parent / f"{tmp_path.name}.txt"
    text.write_text("To be, or not to be: that is the question. " * 100)
    return ["data=text", f"data.path={text}", *(f"model.{change}" for change in SMALL)]


def test_check_prints_json(command: Command, small: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert command(check.job, "check", "format=json", *small) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True and report["counts"]["FAIL"] == 0 and report["ledger"]
    assert {finding["section"] for finding in report["findings"]} == set(SECTIONS)
    assert not list(tmp_path.iterdir())


def test_check_prints_json_of_a_failure_and_exits_1(
    command: Command, small: list[str], capsys: pytest.CaptureFixture[str]
):
    wrong = ["model.attention.n_heads=3", "model.attention.n_kv_heads=3"]
    assert command(check.job, "check", "format=json", *small, *wrong) == 1
    report = json.loads(capsys.readouterr().out)
    failed = [finding["path"] for finding in report["findings"] if finding["status"] == "FAIL"]
    assert report["ok"] is False and "model.attention.n_heads" in failed and report["ledger"] is None


@pytest.mark.parametrize("probes", ["true", "false"])
def test_check_prints_every_section(
    probes: str, command: Command, small: list[str], capsys: pytest.CaptureFixture[str]
):
    assert command(check.job, "check", f"probes={probes}", *small) == 0
    out = capsys.readouterr().out
    places = [out.find(f"{number}. {title}") for number, title in SECTIONS.items()]
    assert -1 not in places and places == sorted(places)
    assert ("UNKNOWN" in out) is (probes == "false")


@pytest.mark.parametrize(
    ("override", "said"),
    [("format=xml", "format: found 'xml'"), ("probes=3", "probes: found 3"), ("formatt=json", "formatt: found 'json'")],
)
def test_a_wrong_knob_of_check_is_refused(
    override: str, said: str, command: Command, capsys: pytest.CaptureFixture[str]
):
    assert command(check.job, "check", override) == 1
    assert said in capsys.readouterr().err


def test_the_command_itself_stops_at_a_failure(tmp_path: Path):
    arguments = ["-m", "recipes.check", "model.attention.n_heads=5", "probes=false", f"output.root={tmp_path}"]
    run = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 1
    assert "Traceback" not in run.stdout + run.stderr and "model.attention.n_kv_heads" in run.stdout + run.stderr
    assert not list(tmp_path.iterdir())

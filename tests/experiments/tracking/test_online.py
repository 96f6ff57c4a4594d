"""What W&B is sent of a run while it trains: itself, its rows and their axes, tables, artifacts, and how it ended."""

import json

import pytest
import wandb

from builder import ConfigError
from builder.experiments.tracking.parts import parts, starts
from tests.tiny_run import plant, rows, spec_of, summary, trained
from tests.wandb_service import Service, serving

ONLINE = "logger=wandb"


def test_a_job_of_a_sweep(tmp_path, service):
    first = trained(tmp_path, ONLINE, "output.name=s1/0", "output.tags=[small,mine]").path
    second = trained(tmp_path, ONLINE, "output.name=s1/1", "trainer.max_steps=6").path
    alone = trained(tmp_path, ONLINE, "output.name=alone", "trainer.max_steps=6").path
    told = [json.loads((path / "wandb" / "run.json").read_text()) for path in (first, second, alone)]
    runs = [service.runs[each["id"]] for each in told]
    assert [(run.shown, run.group, run.state) for run in runs] == [
        ("s1/0", "main/s1", "finished"),
        ("s1/1", "main/s1", "finished"),
        ("alone", "main", "finished"),
    ]
    assert (runs[0].tags, runs[1].tags) == (["small", "mine"], [])
    assert [(each["project"], each["entity"]) for each in told] == [("archlab", "ent")] * 3
    assert runs[0].values["model"]["attention"]["n_heads"] == 2
    assert runs[0].values == json.loads(
        json.dumps(spec_of(tmp_path, ONLINE, "output.name=s1/0", "output.tags=[small,mine]").to_dict())
    )
    assert not service.unknown


def test_rows_stand_on_declared_axes(tmp_path, service):
    path = trained(tmp_path, ONLINE).path
    run = service.only_run()
    assert run.axes == {"step": None, "tokens": None, "flops": None, "*": "step"}
    wanted: dict[int, dict] = {}
    for row in rows(path):  # what belongs to one step is one row
        wanted.setdefault(row["step"], {}).update(row)
    sent = {row["step"]: row for row in run.history if row["step"] > 0}
    assert sent.keys() == wanted.keys() == {3, 4, 6, 8, 9, 12}
    for step, row in wanted.items():
        assert {key: sent[step][key] for key in row} == row
        assert sent[step]["_step"] == step


def test_ledger_and_checklist_stand_in_the_summary(tmp_path, service):
    path = trained(tmp_path, ONLINE).path
    run, said = service.only_run(), summary(path)
    assert {key: run.summary[key] for key in said["ledger"]} == said["ledger"]
    checklist = json.loads((path / "checklist.json").read_text())
    assert run.summary["checklist/ok"] is True
    assert {f"checklist/{status.lower()}": count for status, count in checklist["counts"].items()} == {
        key: run.summary[key] for key in run.summary if key.startswith("checklist/") and type(run.summary[key]) is int
    }
    assert run.summary["hash"] == said["hash"] and run.summary["corpus"] == said["corpus"]
    assert {key: run.summary[f"best/{key}"] for key in said["best"]} == said["best"]


def test_checklist_and_samples_are_tables(tmp_path, service):
    path = trained(tmp_path, ONLINE, "sample.prompt=the cat").path
    run = service.only_run()
    checklist = json.loads((path / "checklist.json").read_text())
    table = service.table(run, "checklist")
    assert table["columns"] == ["status", "section", "path", "found", "rule", "fix"]
    assert [row[0] for row in table["data"]] == [finding["status"] for finding in checklist["findings"]]
    assert [row[2:4] for row in table["data"]] == [[each["path"], each["found"]] for each in checklist["findings"]]
    assert table["data"][0][1] == "1. Dimensions"
    deploy = service.table(run, "checklist/deploy")
    assert [dict(zip(deploy["columns"], row, strict=True)) for row in deploy["data"]] == checklist["deploy"] != []
    samples = service.table(run, "samples")
    assert samples["columns"] == ["step", "prompt", "text"]
    assert samples["data"] == [[12, "the cat", (path / "samples" / "step-12.txt").read_text()]]


def test_artifacts_only_when_asked_for(tmp_path, service):
    trained(tmp_path, ONLINE, "output.name=without")
    assert {each["type"] for each in service.artifacts.values()} == {"run_table"}
    path = trained(tmp_path, ONLINE, "output.name=with", "logger.wandb.artifacts=[config,checkpoints]").path
    name = json.loads((path / "wandb" / "run.json").read_text())["id"]
    kept = {key: each for key, each in service.artifacts.items() if each["type"] != "run_table"}
    assert {key: each["type"] for key, each in kept.items()} == {
        f"config-{name}": "config",
        f"checkpoints-{name}": "model",
    }
    assert all(each["state"] == "COMMITTED" for each in kept.values())
    for artifact, local in (
        ("config", ["config.yaml", "checklist.json", "sheet.md"]),
        ("checkpoints", ["checkpoints/best.ckpt", "checkpoints/last.ckpt"]),
    ):
        for file in local:
            sent = service.files[f"artifact/{artifact}-{name}/{file.rpartition('/')[2]}"]
            assert sent == (path / file).read_bytes()


def test_an_unknown_artifact_is_refused_before_the_run(tmp_path):
    with pytest.raises(ConfigError, match=r"logger\.wandb\.artifacts.*weights(.|\n)*'config' or 'checkpoints'"):
        spec_of(tmp_path, ONLINE, "logger.wandb.artifacts=[config,weights]")


def test_a_run_that_fails_is_closed_as_failed(tmp_path, service, monkeypatch):
    plant(monkeypatch, 5, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, ONLINE)
    run = service.only_run()
    assert run.state == "failed"
    assert (run.summary["status"], run.summary["reason"]) == ("failed", "ZeroDivisionError: division by zero")


@pytest.mark.parametrize("asked", ["online", None], ids=["online", "auto"])
def test_a_server_that_refuses_leaves_the_run_offline(tmp_path, monkeypatch, capsys, asked):
    refusing = Service()
    refusing.broken = True
    with serving(refusing):
        for name, value in refusing.environment.items():
            monkeypatch.setenv(name, value)
        if asked is None:  # as in a shell, where a key is all there is
            monkeypatch.delenv("WANDB_MODE")
        wandb.teardown()
        path = trained(tmp_path, ONLINE).path
        said = capsys.readouterr().err
        wandb.teardown()
    assert "W&B did not start online" in said and "offline, and `python -m recipes.sync` sends it later" in said
    (part,) = [part for part in parts(path) if part.offline]
    assert part.last_step() == 12 and summary(path)["status"] == "completed"
    assert not refusing.runs


def test_a_run_without_wandb_says_so_at_its_end_too(tmp_path, monkeypatch, capsys):
    def refuse(*args, **kwargs):
        raise wandb.errors.CommError("no network")

    monkeypatch.setattr(wandb, "init", refuse)
    trained(tmp_path, "logger=wandb_offline", "output.name=lost")
    said = capsys.readouterr().err.strip().splitlines()
    assert "W&B did not start offline (CommError: no network)" in said[0]
    assert "this run is not in W&B" in said[-1]
    monkeypatch.undo()
    trained(tmp_path, "logger=none", "output.name=asked_for")
    assert "not in W&B" not in capsys.readouterr().err, "a run that asked for no W&B is not reminded of it"


def test_a_run_that_is_open_already_is_not_logged_into(tmp_path, service):
    other = wandb.init(project="other", dir=str(tmp_path))
    trained(tmp_path, ONLINE)
    assert len(service.runs) == 2
    assert not service.runs[other.id].history


@pytest.mark.parametrize("mode", ["offline", "disabled"])
def test_the_environment_may_say_otherwise(tmp_path, service, monkeypatch, capsys, mode):
    monkeypatch.setenv("WANDB_MODE", mode)
    path = trained(tmp_path, ONLINE).path
    assert not service.runs
    assert [part.offline for part in starts(path)] == [True] * (mode == "offline")
    assert "warning" not in capsys.readouterr().err, "it was asked for"


def test_what_could_not_be_delivered_is_said_to_lie_here(tmp_path, service, monkeypatch, capsys):
    ends = wandb.Run.finish

    def late(self, *args, **kwargs):
        ends(self, *args, **kwargs)
        raise TimeoutError("nobody answers")

    monkeypatch.setattr(wandb.Run, "finish", late)
    path = trained(tmp_path, ONLINE).path
    (part,) = starts(path)
    assert f"`wandb sync --include-online {part.path}`" in capsys.readouterr().err

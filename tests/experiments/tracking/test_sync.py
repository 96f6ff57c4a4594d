"""Offline runs on their way to W&B: what is sent, what is not and why, and what the command says of it."""

import os
import socket
import subprocess
import sys
import time

import pytest

from builder.errors import ArchlabError
from builder.experiments.tracking.identity import Identity
from builder.experiments.tracking.parts import parts
from builder.experiments.tracking.upload import QUIET, find, upload
from recipes.sync import job
from tests.tiny_run import MOE, trained
from tests.wandb_log import exit_code

GONE = 2**22 + 1
"""A number that no process has."""


def logged(folder, *more):
    """The tiny run, logged offline; what writes its file may lag behind, and is waited for."""
    run = trained(folder, "logger=wandb_offline", *more)
    assert exit_code(run.path) == 0
    return run


def test_what_is_sent_is_what_an_online_run_sends(tmp_path, service, capsys):
    shared = ["output.tags=[a]", "logger.wandb.artifacts=[config,checkpoints]", *MOE]
    offline = logged(tmp_path, "output.name=s1/0", *shared).path
    trained(tmp_path / "..", "logger=wandb", "output.name=s1/0", f"output.root={tmp_path}/online", *shared)
    online = service.only_run()
    assert parts(offline)[0].last_step() == 12 and len(service.runs) == 1, "the offline one sent nothing so far"
    job({"runs": str(tmp_path / "out")})
    assert capsys.readouterr().out.splitlines() == [f"{offline}: sent", "1 sent, 0 there before, 0 not sent"]
    run = service.runs[parts(offline)[0].id]
    assert (run.shown, run.group, run.tags, run.state) == (online.shown, online.group, online.tags, "finished")
    assert run.axes == online.axes
    assert [row["_step"] for row in run.history] == [row["_step"] for row in online.history]
    assert [row.keys() for row in run.history] == [row.keys() for row in online.history]
    assert run.summary.keys() - {"_runtime"} == online.summary.keys() - {"_runtime"}
    assert run.summary["status"] == "completed"
    assert service.table(run, "checklist") == service.table(online, "checklist")
    assert f"config-{run.name}" in service.artifacts and f"checkpoints-{run.name}" in service.artifacts
    assert any(path.startswith("media/images/moe/load") for path in service.files)
    assert not service.unknown
    job({"runs": str(tmp_path / "out")})
    assert capsys.readouterr().out.splitlines()[-1] == "0 sent, 1 there before, 0 not sent"


def test_the_command_says_what_was_not_sent(tmp_path, service, monkeypatch):
    good = logged(tmp_path, "output.name=good").path
    bad = logged(tmp_path, "output.name=bad").path
    parts(bad)[0].log.write_bytes(b"nothing that W&B wrote")
    command = [sys.executable, "-m", "recipes.sync", f"runs={tmp_path}/out/*/*"]
    ended = subprocess.run(command, env=os.environ | service.environment, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1 and "1 of 2 runs are not in W&B" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert lines[1] == f"{good}: sent" and lines[2] == "1 sent, 0 there before, 1 not sent"
    assert lines[0].startswith(f"{bad}: not sent: ") and "bad header" in lines[0]
    assert [run.name for run in service.runs.values()] == [parts(good)[0].id]


def test_without_a_server_nothing_is_said_to_be_sent(tmp_path, monkeypatch):
    path = logged(tmp_path).path
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("WANDB_BASE_URL", address)
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    started = time.monotonic()
    (fate,) = upload([path])
    assert time.monotonic() - started < 30
    assert not fate.there and "connection refused" in fate.fault
    assert not parts(path)[0].sent, "it can be sent another time"


def test_without_a_key_it_says_how_to_log_in(tmp_path, monkeypatch):
    path = logged(tmp_path).path
    monkeypatch.setenv("HOME", str(tmp_path))  # where a key would be
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    (fate,) = upload([path])
    assert "`wandb login`" in fate.fault


@pytest.mark.parametrize("inside", [True, False])
def test_a_run_that_was_killed_is_sent_as_far_as_it_was_written(inside, tmp_path, service, monkeypatch):
    """Wherever it is called: W&B names what it can't send by a path from there."""
    monkeypatch.chdir(tmp_path if inside else "/")
    folder = logged(tmp_path)
    (part,) = parts(folder.path)
    written = part.log.read_bytes()
    part.log.write_bytes(written[: len(written) * 6 // 10])  # no end, and a record that is cut in two
    folder.summarise("running")
    Identity(part.id, "archlab", None, GONE).keep(folder.path)
    reached = part.last_step()
    assert 0 < reached < 12
    (fate,) = upload(find(str(tmp_path)))
    assert fate.there, fate.fault
    assert service.only_run().history[-1]["_step"] == reached
    sent = len(service.only_run().history)
    (fate,) = upload(find(str(tmp_path)))
    assert fate.before and len(service.only_run().history) == sent


@pytest.mark.parametrize(
    ("pid", "host", "quiet", "left_alone"),
    [
        (os.getpid(), socket.gethostname(), 2 * QUIET, True),
        (GONE, socket.gethostname(), 0, False),
        (os.getpid(), "elsewhere", 0, True),
        (os.getpid(), "elsewhere", 2 * QUIET, False),
    ],
    ids=["its process is there", "its process is gone", "elsewhere, writing", "elsewhere, silent"],
)
def test_a_run_under_way_is_left_alone(tmp_path, service, pid, host, quiet, left_alone):
    folder = logged(tmp_path)
    (part,) = parts(folder.path)
    os.utime(part.log, (time.time() - quiet,) * 2)
    Identity(part.id, "archlab", None, pid, host).keep(folder.path)
    folder.summarise("running")
    (fate,) = upload([folder.path])
    assert ("under way" in fate.fault) is left_alone and fate.there is not left_alone
    assert bool(service.runs) is not left_alone


def test_a_run_that_was_killed_before_wandb_wrote_holds_nothing(tmp_path, service):
    folder = logged(tmp_path)
    (part,) = parts(folder.path)
    part.log.write_bytes(part.log.read_bytes()[:7])
    folder.summarise("running")
    (fate,) = upload(find(str(tmp_path)))
    assert "W&B had written nothing" in fate.fault and not service.runs


def test_nowhere_to_look(tmp_path):
    with pytest.raises(ArchlabError, match=r"runs: found .*nothing there"):
        find(str(tmp_path / "nowhere"))
    with pytest.raises(ArchlabError, match="no offline run in or below it"):
        find(str(tmp_path))
    (tmp_path / "a" / "wandb" / "offline-run-20260101_000000-abc").mkdir(parents=True)
    assert find(str(tmp_path)) == find(f"{tmp_path}/*") == [tmp_path / "a"]

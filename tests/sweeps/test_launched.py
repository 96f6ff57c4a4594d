"""A job that never started, or ended without a word: both are told, and can be gone on with."""

import pytest

from builder.experiments.folder import RunFolder
from builder.sweeps import launched, plan
from builder.sweeps.spec import SweepSpec
from tests.sweeps.folders import statuses, sweeps


class Unable:
    """A job's process on a machine that has no room for another one."""

    def Process(self, **_):
        return self

    def start(self):
        raise EOFError("unexpected EOF")


def test_a_job_whose_process_does_not_start_says_so_and_is_resumed(sweep, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(launched, "_forking", Unable)
        code, said = sweep("seed=0")
    (folder,) = sweeps(tmp_path)
    assert code == 1 and statuses(folder) == ["failed"]
    assert "job 0 of 1: failed: no process could be started for it (unexpected EOF)" in said
    assert f"\npython -m recipes.train -m sweep.resume={folder}\n" in said
    monkeypatch.setattr(launched.Job, "read", lambda config: {}["a plan"])  # what is raised before it has a name
    assert "KeyError: 'a plan'" in sweep(f"sweep.resume={folder}", tiny=False)[1]


@pytest.mark.parametrize(
    ("before", "code", "wrote", "asked", "status", "reason"),
    [
        ("failed", 1, True, False, "failed", "of its own"),
        ("completed", 0, False, False, "completed", "of its own"),  # by another process
        ("completed", 255, True, True, "completed", "of its own"),
        ("interrupted", 1, False, False, "failed", "ended with exit code 1 without a word; see log.txt"),
        ("failed", 255, False, False, "failed", "ended with exit code 255 without a word"),
        ("running", 0, True, False, "failed", "ended with exit code 0 without a word"),
        ("running", -15, True, True, "interrupted", "killed by SIGTERM without a word"),
    ],
)
def test_a_job_that_ends_without_a_word_is_told_of(before, code, wrote, asked, status, reason, tmp_path):
    folder = RunFolder(tmp_path)
    folder.summarise(before, reason="of its own")
    job = launched.Job(folder, {}, plan.Planned((), "planned"), 1, SweepSpec())
    assert launched._status(job, code, wrote, asked) == folder.summary()["status"] == status
    assert reason in folder.summary()["reason"]

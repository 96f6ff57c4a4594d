"""A disk that takes no more is told in a sentence, with what is free and was wanted; no other fault is taken for it."""

import errno
from pathlib import Path

import pytest

from builder.disk import DiskFull, room_for
from builder.experiments.metrics import Axes, read_metrics
from builder.training.jsonl import JsonlLogger


def test_room_that_is_there_changes_nothing(tmp_path):
    with room_for(tmp_path / "file"):
        (tmp_path / "file").write_text("text")
    assert (tmp_path / "file").read_text() == "text"


def test_what_was_wanted_is_asked_afterwards(tmp_path):
    size = 0
    with pytest.raises(DiskFull) as full, room_for(tmp_path / "file", lambda: size):
        size = 3 * 2**20
        raise OSError(errno.ENOSPC, "No space left on device")
    said = str(full.value)
    assert said.startswith(f"{tmp_path}/file: no room is left: ")
    assert "MiB are free on its disk of the 3.0 MiB that it takes" in said and "resume=" in said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EDQUOT, "no room is left of your quota.*: make room, then"),
        (errno.EFBIG, "no file may become so large here.*: raise the limit .ulimit -f"),
        (errno.EROFS, "its disk can only be read now.*: make it writable again, then"),
    ],
)
def test_each_reason_is_called_by_its_name(tmp_path, number, said):
    with pytest.raises(DiskFull, match=said), room_for(tmp_path / "file"):
        raise OSError(number, "as the system calls it")


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), ValueError("no number")], ids=repr)
def test_another_fault_stays_what_it_is(tmp_path, error):
    with pytest.raises(type(error)) as raised, room_for(tmp_path / "file"):
        raise error
    assert raised.value is error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no device that is always full")
def test_a_log_line_that_does_not_fit(tmp_path):
    logger = JsonlLogger(tmp_path / "metrics.jsonl", Axes(1, 1))
    logger.log_metrics({"train/loss": 1.0}, step=0)
    assert [row["step"] for row in read_metrics(logger.path)] == [1]
    logger.path = Path("/dev/full")
    with pytest.raises(DiskFull, match="/dev/full: no room is left"):
        logger.log_metrics({"train/loss": 1.0}, step=1)

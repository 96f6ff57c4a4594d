"""Processes that share a run: one that dies ends them all at once, and signals reach them."""

import os
import time
from pathlib import Path

import pytest

from builder.errors import ConfigError
from builder.experiments import together

RANK = "tests.experiments.dying_rank"


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(("how", "said"), [("killed", "was killed by SIGKILL"), ("failed", "ended with exit code 3")])
def test_a_rank_that_dies_ends_the_run_with_its_name(tmp_path, how, said):
    file, started = tmp_path / "pid", time.monotonic()
    with pytest.raises(together.RankDied, match=f"rank 1 of 2 {said}; the others were ended"):
        together.start({"how": how, "file": str(file)}, 2, RANK)
    assert time.monotonic() - started < 30, "no one waits for a timeout of the network"
    assert not file.exists() or gone(int(file.read_text()))


def test_ranks_that_end_well_are_no_failure(tmp_path):
    together.start({"how": "well"}, 2, RANK)


def test_each_rank_is_told_its_place_as_torchrun_would(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    places = [together._environment(number, 2, 1234) for number in range(2)]
    assert [(place["RANK"], place["LOCAL_RANK"], place["WORLD_SIZE"]) for place in places] == [
        ("0", "0", "2"),
        ("1", "1", "2"),
    ]
    assert places[0]["MASTER_PORT"] == "1234"
    assert int(places[0]["OMP_NUM_THREADS"]) * 2 <= max(2, os.cpu_count() or 1), "ranks share the cores"


@pytest.mark.parametrize(("devices", "count"), [(1, 1), (2, 2), ("2", 2), ([0, 1, 2], 3)])
def test_the_trainer_says_how_many_there_are(devices, count):
    assert together.processes({"devices": devices}) == count


def test_several_machines_are_started_from_outside():
    with pytest.raises(ConfigError, match=r"trainer\.num_nodes: found 2\n.*torchrun"):
        together.processes({"devices": 1, "num_nodes": 2})


@pytest.mark.parametrize(
    ("variables", "outside"),
    [
        ({}, False),
        ({"WORLD_SIZE": "2", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, True),
        ({"WORLD_SIZE": "1", "RANK": "0", "TORCHELASTIC_RUN_ID": "x"}, False),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, True),
        ({"SLURM_NTASKS": "1", "SLURM_PROCID": "0"}, False),
    ],
)
def test_who_was_started_from_outside(monkeypatch, variables, outside):
    for name in ("WORLD_SIZE", "RANK", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert together.outside() is outside

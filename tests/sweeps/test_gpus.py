"""Jobs at once see different GPUs: with real processes and real locks, and a list in the place of a machine's GPUs."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack

import pytest
import torch

from builder.compose import ROOT
from builder.sweeps import gpus
from builder.sweeps.gpus import VARIABLE, Request, taken

JOB = """
import json, os, sys
from pathlib import Path
from builder.sweeps.gpus import Request, taken
visible, count = json.loads(sys.argv[2])
with taken(Request({name: Path(sys.argv[1], which) for name, which in visible.items()}, count)):
    print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    sys.stdin.read()
"""
"""A job that holds its GPUs until it is told to end, or killed."""

FOUR = {str(number): f"GPU-{number}" for number in range(4)}


@pytest.fixture
def jobs(tmp_path):
    """jobs(request, ...): starts as many processes at once; gives them, and what each of them sees."""
    with ExitStack() as running:

        def start(*requests):
            typed = [[sys.executable, "-c", JOB, str(tmp_path), json.dumps(request)] for request in requests]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": ROOT}
            new = [subprocess.Popen(words, **pipes) for words in typed]
            for process in new:
                running.enter_context(process)
                running.callback(process.kill)
            seen = [process.stdout and [process.stdout.readline() for _ in range(2)] for process in new]
            return new, [lines[1].strip() for lines in seen if lines]

        yield start


def test_jobs_at_once_see_different_gpus_and_a_killed_ones_is_free_again(jobs):
    pair, single = (FOUR, 2), (FOUR, 1)
    (_, killed, ended), seen = jobs(pair, single, single)
    assert sorted(",".join(seen).split(",")) == ["0", "1", "2", "3"] and [len(each) for each in seen] == [3, 1, 1]
    _, more = jobs(single, single, pair)  # more than there are: each has one job, then the same again
    assert Counter(",".join(more).split(",")) == Counter("0123")
    killed.kill()
    killed.wait()
    assert jobs(single)[1] == [seen[1]]
    ended.communicate()
    assert jobs(({"x": f"GPU-{seen[2]}", "y": f"GPU-{seen[1]}"}, 1))[1] == ["x"], "the same GPU by another name"


def test_what_the_trainer_asks_for(monkeypatch, tmp_path):
    """The first job holds "7"; `devices` that are named stay all visible, since they are counted among all."""
    monkeypatch.setattr(gpus, "visible", lambda: {"7": "a", "2": "b", "3": "c"})
    monkeypatch.setattr(gpus.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "7,2,3")

    def sees(**trainer):
        with taken(Request.of({"accelerator": "gpu"} | trainer)):
            return os.environ[VARIABLE]

    with taken(Request.of({"devices": 1})):
        assert sees(devices=1) == "2" and sees(devices=2) == sees(devices="2") == "2,3"
        assert sees(devices=-1) == sees(devices="auto") == sees() == sees(devices=[1]) == "7,2,3"
        with taken(Request.of({"devices": "1,"})):
            assert sees(devices=1) == "3"
        assert sees(devices=9) == "7,2,3"  # which the run refuses
    os.environ[VARIABLE] = "7,2,3"
    assert sees(accelerator="cpu", devices=1) == "7,2,3" and Request.of({"accelerator": "cpu"}) is None
    monkeypatch.setattr(gpus, "_jobs", lambda place: 0)
    with taken(Request.of({"devices": 1})):
        assert sees(devices=1) == "7", "where nobody counts the jobs, all take the first"


@pytest.mark.parametrize(
    ("said", "count", "found"),
    [
        (None, 4, {"0": "GPU-aa", "1": "GPU-ab", "2": "GPU-ca", "3": "GPU-cb"}),
        ("2,3", 2, {"2": "GPU-ca", "3": "GPU-cb"}),
        ("3, 0,9,1", 2, {"3": "GPU-cb", "0": "GPU-aa"}),  # behind the 9, which isn't there, CUDA sees none
        ("GPU-ab,GPU-c", 2, {"GPU-ab": "GPU-ab", "GPU-c": "GPU-c"}),
        ("GPU-ca", 1, {"GPU-ca": "GPU-ca"}),
        ("MIG-1/2,MIG-3", 1, {"MIG-1/2": "MIG-1/2", "MIG-3": "MIG-3"}),
        ("", 0, {}),
    ],
)
def test_what_is_there_to_hand_out(said, count, found, monkeypatch, tmp_path):
    """As nvidia-smi lists it, and CUDA counts it."""
    listed = tmp_path / "nvidia-smi"
    listed.write_text("#!/bin/sh\nprintf '0, GPU-aa\\n1, GPU-ab\\n2, GPU-ca\\n3, GPU-cb\\n'\n")
    listed.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.delenv(VARIABLE, raising=False) if said is None else monkeypatch.setenv(VARIABLE, said)
    assert gpus.visible() == found
    listed.write_text("#!/bin/sh\nexit 9\n")
    assert gpus.visible() == {name: name for name in found}

"""Ctrl-C on a real process: it ends with 130 and a checkpoint, and the run can be gone on with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.tiny_run import checkpoint, only_run, overrides, resumed, rows, summary

ROOT = Path(__file__).parents[2]


def test_ctrl_c(tmp_path):
    many = ("trainer.max_steps=240", "trainer.val_check_interval=120", "callbacks.last.every_n_steps=120")
    command = [sys.executable, "-m", "recipes.train", *overrides(tmp_path, *many, "trainer.log_every_n_steps=1")]
    slow = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        while not any(file.stat().st_size for file in tmp_path.glob("out/main/*/metrics.jsonl")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    path = only_run(tmp_path)
    step = checkpoint(path)["global_step"]
    assert process.returncode == 130, err
    assert 0 < step < 240
    assert "Traceback" not in err
    assert err.splitlines()[-1] == f"error: interrupted after step {step}; go on with resume={path}"
    assert "stopping after this step" in out
    assert summary(path)["status"] == "interrupted"
    resumed(path)
    assert summary(path)["status"] == "completed"
    assert [row["step"] for row in rows(path) if "train/loss" in row] == list(range(1, 241))

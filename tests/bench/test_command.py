"""The command: its file, its table, its exit codes, and what it refuses before anything is measured."""

import json
import sys
import time
from pathlib import Path

import pytest
import torch

import builder.bench.suite
from builder import ArchlabError
from builder.bench.contender import Ours
from builder.bench.machine import refuse_too_large
from builder.bench.memory import expected, peak
from builder.bench.settings import BenchSpec, workload
from builder.bench.work import PARTS, TrainingStep
from builder.cli import main
from recipes import bench
from tests.bench.tiny import LLAMA, spec_of

QUICK = ["bench.rounds=2", "bench.seconds=0.001", "bench.batch_sizes=[1,2]", "bench.new_tokens=3", "bench.device=cpu"]


def call(*words: str) -> int:
    """Runs the command in this process; gives its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["bench", *words])
        try:
            main(bench.job, "bench")
        except SystemExit as end:
            assert isinstance(end.code, int)
            return end.code
    return 0


@pytest.fixture
def no_child(monkeypatch: pytest.MonkeyPatch):
    """Leaves out the processes that measure memory, which take seconds to start."""
    monkeypatch.setattr(builder.bench.suite, "peak", lambda config, work, folder: 2**20 * (3 if folder else 2))


def written(root: Path) -> dict:
    (path,) = root.glob("bench/*")
    return json.loads(path.read_text())


def test_mfu_is_of_the_forward_and_backward_flops_of_a_step(no_child, tmp_path, capsys, monkeypatch):
    """Where the maker's number is known; elsewhere nothing is said of it."""
    alone = [*LLAMA, *QUICK, "bench.batch_sizes=[1]"]
    assert call(*alone, f"output.root={tmp_path}/unknown") == 0
    assert written(tmp_path / "unknown")["mfu"] is None
    assert "MFU" not in capsys.readouterr().out
    monkeypatch.setattr(builder.bench.suite, "peak_of", lambda device, precision: 1e9)
    assert call(*alone, f"output.root={tmp_path}/known") == 0
    found = written(tmp_path / "known")
    weights = 260 * 16 + 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 40)  # in products; the table is looked up
    attention = 2 * 4 * 16 * 16  # two layers, q k^T and a v, of 16 tokens, over the whole width
    step = 3 * 32 * (2 * weights + attention)
    assert found["mfu"] == pytest.approx(step / found["timings"][0]["median_seconds"]["archlab"] / 1e9)
    assert "MFU of training" in capsys.readouterr().out


@pytest.mark.parametrize("slow", PARTS)
def test_the_parts_of_a_step_are_told_apart(slow, monkeypatch):
    """What one of them waits for is that one's."""
    spec = spec_of(*LLAMA)
    work = workload(spec, BenchSpec(device="cpu"))
    step = TrainingStep(Ours(spec, work.place), spec, work)
    step.step()
    places = {"forward": (step, "losses"), "backward": (torch.Tensor, "backward"), "update": (step.optimizer, "step")}
    owner, name = places[slow]
    does = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args: (time.sleep(1), does(*args))[1])
    seconds = step.parts()
    assert (
        all(seconds[part] > 0 for part in PARTS) and max(seconds, key=seconds.__getitem__) == slow and seconds[slow] > 1
    )


def test_beside_a_peer(no_child, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(*LLAMA, *QUICK, "peers=true", f"output.root={tmp_path}") == 0
    out, found = capsys.readouterr().out, written(tmp_path)
    spec = spec_of(*LLAMA, f"output.root={tmp_path}")
    assert found["config_hash"] == spec.hash
    assert found["config"] == json.loads(json.dumps(spec.to_dict()))
    assert {"device", "device_name", "cpu", "threads", "torch"} <= found["machine"].keys()
    assert found["peer"].startswith("LlamaForCausalLM ")
    ours, theirs = found["parameters"].values()
    assert ours == theirs == 2 * 260 * 16 + 2 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 40 + 2 * 16) + 16
    kinds = [(timing["what"], timing["batch"], timing["tokens"]) for timing in found["timings"]]
    assert kinds == [
        *[("training", 2, 32), ("prefill", 1, 12), ("prefill", 2, 24)],
        *[("decode", 1, 1), ("decode", 2, 2), ("generate", 1, 3), ("generate", 2, 6)],
    ]
    for timing in found["timings"]:
        one, other = timing["seconds"]["archlab"], timing["seconds"]["transformers"]
        assert len(one) == len(other) == 2
        assert min(*one, *other) > 0
        assert timing["ratio"]["median"] == pytest.approx((one[0] / other[0] + one[1] / other[1]) / 2)
        assert timing["ratio"]["verdict"] == "level"  # two rounds prove nothing
        assert timing["tokens_per_second"]["archlab"] == pytest.approx(timing["tokens"] / (sum(one) / 2))
    assert found["memory"]["bytes"] == {"archlab": 2**21, "transformers": 3 * 2**20}
    assert 0 < found["memory"]["forecast"] < 2**20
    assert "0.67" in next(line for line in out.splitlines() if line.startswith("memory"))
    assert out.count(" level") >= 7
    assert "fewer than 6 rounds" in out
    assert f"every sample is in {tmp_path}/bench/" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_alone_in_bfloat16(no_child, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(*LLAMA, *QUICK, "bench.dtype=bfloat16", f"output.root={tmp_path}") == 0
    found = written(tmp_path)
    assert found["peer"] is None
    assert [timing["ratio"] for timing in found["timings"]] == [None] * 7
    assert "bfloat16" in capsys.readouterr().out


def test_memory_of_a_process_of_its_own():
    """Weights, gradients and two moments are four numbers a parameter, and one float32 number takes four bytes."""
    small = spec_of(*LLAMA)
    large = spec_of(*LLAMA, "model.vocab_size=200000")
    work = workload(small, BenchSpec(device="cpu"))
    least = 4 * 4 * 2 * 16 * 200000
    assert peak(small.to_dict(), work, None) == pytest.approx(expected(small, work), rel=0.02)
    measured = peak(large.to_dict(), work, None)
    assert least < measured < 4 * least
    assert measured == pytest.approx(expected(large, work), rel=0.02)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bench.roundz=3", "model.n_headz=4"], ["bench.roundz", "did you mean bench.rounds?", "model.n_headz"]),
        (["bench.rounds=0"], ["bench.rounds: found 0"]),
        (["bench.dtype=float8"], ["bench.dtype: found 'float8'"]),
        (["bench.batch_sizes=[]"], ["bench.batch_sizes"]),
        (["peers=perhaps"], ["peers: found 'perhaps'", "true or false"]),
        (["bench.new_tokens=20"], ["bench.new_tokens: found 12 prompt tokens and 20 new ones", "deploy_length=24"]),
        (["bench.prompt_length=24"], ["bench.prompt_length", "deploy_length=26"]),
        (["model.vocab_size=100000000000"], ["the checklist fails at batch"]),
        (["model.attention.n_heads=3", "model.attention.n_kv_heads=3"], ["the checklist fails at"]),
        (["peers=true", "model.block.dropout=0.1"], ["model.block.dropout: found 0.1"]),
        (["peers=true", "model/position=sinusoidal"], ["peers=true: transformers has no model like this one"]),
    ],
)
def test_what_cannot_be_measured_is_refused(words, said, no_child, tmp_path, capsys):
    assert call(*LLAMA, *QUICK[:3], *words, f"output.root={tmp_path}") == 1
    err = capsys.readouterr().err
    assert [part for part in said if part not in err] == []
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_what_is_larger_than_the_machine_is_refused():
    refuse_too_large(1, "cpu")
    with pytest.raises(ArchlabError, match="GiB"):
        refuse_too_large(2**60, "cpu")


def test_without_transformers(no_child, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert call(*LLAMA, *QUICK, "peers=true", f"output.root={tmp_path}") == 1
    assert "pip install transformers" in capsys.readouterr().err

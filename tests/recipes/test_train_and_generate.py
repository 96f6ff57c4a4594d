"""From the command line in one process: a run is trained, gone on with, and made to write."""

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import recipes.generate
import recipes.train
from builder.cli import main
from builder.data.tokenizer.bytes import Bytes
from builder.generation.sampling import Sampler
from tests.tiny_run import checkpoint, only_run, overrides, plant, rows, summary, without_probes


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("home")


def call(job: Callable, name: str, *words: str) -> int:
    """Runs a command in this process; gives its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *words])
        try:
            main(job, name)
        except SystemExit as end:
            assert isinstance(end.code, int)
            return end.code
    return 0


train = partial(call, recipes.train.job, "train")
generate = partial(call, recipes.generate.job, "generate")


@pytest.fixture(scope="module")
def run(home) -> Path:
    """A run trained by its command."""
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        assert train(*overrides(home, "output.name=made")) == 0
    return home / "out/main/made"


@pytest.fixture
def write(run, capsys):
    """`generate` on that run: (exit code, stdout, stderr)."""

    def written(*words: str):
        return generate(f"run={run}", *words), *capsys.readouterr()

    return written


def test_a_run_says_where_it_lies_and_what_to_type_next(tmp_path, capsys):
    assert train(*overrides(tmp_path)) == 0
    out, err = capsys.readouterr()
    path = only_run(tmp_path)
    assert err == ""
    assert f"run folder {path}\n" in out  # in one line, however long
    assert f"python -m recipes.generate run={path} " in out.splitlines()[-1]
    assert "\nstep      4 of 12  loss " in out
    assert "\nThe " in out


def test_greedy_twice(write):
    code, first, checklist = write("prompt=the", "temperature=0", "max_new_tokens=12")
    assert code == 0
    assert first.startswith("the")
    assert first.endswith("\n")
    assert "Checklist of config" in checklist
    assert "Checklist" not in first
    assert write("prompt=the", "temperature=0", "max_new_tokens=12")[1] == first


def test_a_seed_repeats_a_sample(write):
    words = ("prompt=the", "temperature=1", "max_new_tokens=20")
    one, again, other = (write(*words, f"seed={seed}")[1] for seed in (1, 1, 2))
    assert one == again != other


def test_past_the_deploy_length(write):
    code, out, err = write("prompt=the", "max_new_tokens=40")
    assert (code, out) == (1, "")
    assert "prompt 3 + max_new_tokens 40 = 43" in err
    assert "model.deploy_length = 32" in err
    assert "Traceback" not in err
    code, _, err = write(f"prompt={'x' * 32}")
    assert code == 1
    assert "prompt 32 + max_new_tokens 1 = 33" in err


def test_an_empty_prompt_starts_a_document(write):
    code, out, _ = write("max_new_tokens=6", "seed=0")
    assert code == 0
    assert out.strip("\n")
    assert write("prompt=", "max_new_tokens=6", "seed=0")[1] == out


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("temprature=0", r"temprature"),
        ("temperature=-1", "temperature"),
        ("top_k=0", "top_k"),
        ("checkpoint=nope", "nope.ckpt: no such checkpoint; there are: best, last"),
    ],
)
def test_what_is_wrong_is_named(write, word, said):
    code, out, err = write(word)
    assert (code, out) == (1, "")
    assert said in err
    assert "Traceback" not in err


def test_an_unknown_key_is_answered_with_the_right_one(write):
    assert "did you mean temperature?" in write("temprature=0")[2]


def test_the_run_must_be_given_and_exist(capsys, tmp_path):
    assert generate("prompt=x") == 1
    assert "run=..." in capsys.readouterr().err
    assert generate(f"run={tmp_path}/none") == 1
    assert f"run: found '{tmp_path}/none', which doesn't exist" in capsys.readouterr().err


def test_the_checkpoint_that_was_asked_for(run, write, monkeypatch):
    seen = []
    whole = recipes.generate.load_run
    monkeypatch.setattr(recipes.generate, "load_run", lambda *args: seen.append(args) or whole(*args))
    assert write("checkpoint=last", "max_new_tokens=2")[0] == 0
    assert write("max_new_tokens=2")[0] == 0
    assert seen == [(str(run), "last"), (str(run), "best")]


def test_a_draft_proposes_and_is_told_of(run, home, tmp_path, write):
    plain = write("temperature=0", "max_new_tokens=9")[1]
    code, text, told = write("temperature=0", "max_new_tokens=9", f"draft={run}", "draft_tokens=2")
    assert (code, text) == (0, plain) and "draft: 100% of its tokens were used" in told
    assert "nothing reads it while draft is null" in write("draft_tokens=2")[2]
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        assert train(*overrides(tmp_path, "output.name=other", "tokenizer=bpe", "tokenizer.vocab_size=300")) == 0
    code, _, told = write(f"draft={tmp_path}/out/main/other")
    assert code == 1 and "a run whose tokenizer is that of" in told


def test_text_streams_and_no_character_comes_in_halves(write, monkeypatch):
    text = "né 漢🎈!"
    ids = iter([*text.encode(), 256])
    shown = []

    def scripted(self, logits, **_):
        return torch.full(logits.shape[:1], next(ids)), torch.zeros(len(logits))

    monkeypatch.setattr(Sampler, "__call__", scripted)
    monkeypatch.setattr(sys.stdout, "write", partial(note, shown, sys.stdout.write))
    code, out, _ = write("prompt=a", "max_new_tokens=20")
    assert code == 0
    assert out == f"a{text}\n"
    assert [part for part in shown if part] == ["a", "n", "é", " ", "漢", "🎈", "!", "\n"]


def note(kept, write, text):
    kept.append(text)
    return write(text)


def test_a_failing_checklist_stops_generation(run, write, monkeypatch):
    monkeypatch.setattr(Bytes, "__len__", lambda self: 300)  # more ids than the model has rows
    code, out, err = write("prompt=a")
    assert (code, out) == (1, "")
    assert "its checklist fails" in err


@pytest.fixture
def stopped(tmp_path, monkeypatch, capsys) -> Path:
    """A run that was interrupted after step 5."""
    with monkeypatch.context() as patch:
        plant(patch, 5, partial(os.kill, os.getpid(), signal.SIGINT))
        assert train(*overrides(tmp_path)) == 130
    path = only_run(tmp_path)
    out, err = capsys.readouterr()
    assert "stopping after this step" in out
    assert err == f"error: interrupted after step 5; go on with resume={path}\n"
    return path


def test_resume(stopped, capsys):
    assert train(f"resume={stopped}") == 0
    assert f"going on with {stopped} after step 5 of 12\n" in capsys.readouterr().out
    assert summary(stopped)["status"] == "completed"
    assert checkpoint(stopped)["global_step"] == 12
    before = rows(stopped)
    assert train(f"resume={stopped}") == 1
    assert f"resume: {stopped} is completed: it stands at step 12 of 12" in capsys.readouterr().err
    assert rows(stopped) == before
    assert summary(stopped)["status"] == "completed"


@pytest.mark.parametrize(
    "word",
    [
        "model.d_model=32",
        "++seed=1",
        "model/norm=layernorm",
        "trainer.max_steps=99",
        "experiment=nanogpt_cpu",
        "~sample",
        "batch={sequences:16}",
        "trainer={max_steps:9}",
    ],
)
def test_resume_refuses_other_overrides(stopped, capsys, word):
    assert train(f"resume={stopped}", word) == 1
    err = capsys.readouterr().err
    assert word.lstrip("+~").partition("=")[0] in err
    assert f"resume={stopped} without it" in err
    assert summary(stopped)["status"] == "interrupted"


def test_resume_computes_in_another_way(stopped, capsys):
    """How a run is computed may be another: that alone is taken from what is typed."""
    assert train(f"resume={stopped}", "batch.micro_batch=3", "activation_checkpointing=[ffn]", "trainer.devices=1") == 0
    assert summary(stopped)["status"] == "completed"


def test_resume_of_nothing(tmp_path, capsys):
    assert train(f"resume={tmp_path}/none") == 1
    assert f"resume: found '{tmp_path}/none', which doesn't exist" in capsys.readouterr().err
    assert train("resume=7") == 1
    assert "resume=outputs/main/<run>" in capsys.readouterr().err


def test_a_bug_is_no_clear_message_but_a_traceback(tmp_path, monkeypatch):
    plant(monkeypatch, 2, lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train(*overrides(tmp_path))
    assert summary(only_run(tmp_path))["status"] == "failed"

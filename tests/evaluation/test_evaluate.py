"""A trained run, evaluated: the figures of its own validation, answers, and what is said in their place."""

import json
import os
import re
import signal
import sys
from functools import partial

import pytest
import torch

from builder import load_run
from builder.cli import main
from builder.data import cache_folder, prepare
from builder.evaluation import evaluate
from builder.evaluation.scores import COPY, FREQUENT, MODEL
from builder.experiments.train import Stopped
from builder.training.figures import names
from recipes.evaluate import job
from tests.tiny_run import checkpoint as read_checkpoint
from tests.tiny_run import only_run, plant, resumed, rows, same, trained, without_probes

SMALL = ("trainer.max_steps=8", "trainer.limit_val_batches=1.0", "schedule.warmup_steps=2")
CLASSES = (
    *("model=encoder", "model/head=classifier", "model.head.n_classes=2", "model.tie_embeddings=false"),
    *("objective=classification", "data=passages", "data.topics=2", "data.overlong=truncate", "data.val_fraction=0.2"),
)
REVERSE = (
    *("model=encoder_decoder", "objective=seq2seq", "data=reverse", "data.form=pairs", "tokenizer=symbols"),
    *("model.cross.n_heads=2", "model.encoder.n_layers=1", "model.train_length=8", "model.deploy_length=8"),
    *("data.n_symbols=4", "data.val_rows=10", "sample.prompt=1 2 3"),
)


@pytest.fixture(scope="module", params=[REVERSE, CLASSES], ids=["pairs", "classes"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        # options of the tiny run's own text and heads, which others have not
        return trained(folder, *SMALL, *request.param, *(f"~data.path={folder}/text.txt",))


def call(*words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["evaluate", *words])
        try:
            main(job, "evaluate")
        except SystemExit as end:
            return end.code
    return 0


def test_the_figures_are_those_of_the_last_validation(run):
    kept = load_run(run.path, "last")
    found = evaluate(kept.spec, kept.model, prepare(kept.spec, cache=cache_folder()))
    last = {name: value for name, value in rows(run.path)[-1].items() if name.startswith("val/")}
    assert set(last) <= set(found.metrics) and "val/accuracy" in last
    corpus = prepare(kept.spec, cache=cache_folder())
    assert set(last) == {name for name in names(kept.spec, corpus) if name.startswith("val/")}
    assert {name: found.metrics[name] for name in last} == pytest.approx(last, rel=1e-5)
    with torch.no_grad():
        kept.model.embedding.weight.add_(1.0)
    moved = evaluate(kept.spec, kept.model, prepare(kept.spec, cache=cache_folder()))
    assert moved.metrics["val/loss"] != pytest.approx(last["val/loss"], rel=1e-3), "of this model"


def test_what_the_command_says_and_keeps(run, capsys):
    assert call(f"run={run.path}", "checkpoint=last", "limit=7", "format=json") == 0
    told = json.loads(capsys.readouterr().out)
    kept = json.loads((run.path / "evaluation.json").read_text())
    assert told == kept and kept["rows"] == kept["limit"] == 7
    if kept["scores"]:
        assert list(kept["scores"]) == [MODEL, COPY, FREQUENT]
        for example in kept["examples"]:
            assert example["wanted"].split() == example["source"].split()[::-1], "the task is to reverse"
        right = sum(example["written"] == example["wanted"] for example in kept["examples"])
        assert len(kept["examples"]) == 7 and kept["scores"][MODEL]["exact_match"] == pytest.approx(100 * right / 7)
        palindromes = sum(example["source"] == example["wanted"] for example in kept["examples"])
        assert kept["scores"][COPY]["exact_match"] == pytest.approx(100 * palindromes / 7)
    beams = ("num_beams=2",) if kept["scores"] else ()
    assert call(f"run={run.path}", "checkpoint=last", "limit=2", *beams) == 0
    assert re.search(r"last,\s+2\s+validation\s+rows", capsys.readouterr().out)
    assert kept["chosen_by"] is None, "but for best"
    assert call(f"run={run.path}", "limit=2") == 0
    best = json.loads((run.path / "summary.json").read_text())["best"]
    assert f"best (val/loss {best['val/loss']:g}, step {best['step']})" in " ".join(capsys.readouterr().out.split())
    if not beams:
        assert call(f"run={run.path}", "num_beams=2") == 1, "without answers there is nothing to search for"
        assert "num_beams: found 2\n    rule: nothing reads it" in capsys.readouterr().err


def test_a_run_of_pairs_goes_on_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    without_probes(monkeypatch)
    ends = []
    for name in ("whole", "stopped"):
        folder = tmp_path / name
        folder.mkdir()
        words = (*SMALL, *REVERSE, f"~data.path={folder}/text.txt", "model.block.dropout=0.1")
        if name == "whole":
            ends.append(trained(folder, *words).path)
            continue
        with monkeypatch.context() as patch:
            plant(patch, 5, partial(os.kill, os.getpid(), signal.SIGTERM))
            with pytest.raises(Stopped, match="after step 5"):
                trained(folder, *words)
        ends.append(resumed(only_run(folder)).path)
    one, other = ends
    assert same(read_checkpoint(one)["state_dict"], read_checkpoint(other)["state_dict"]) and rows(one) == rows(other)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run=/nowhere",), "/nowhere"),
        (("limit=0",), "limit"),
        (("checkpoint=third",), "third"),
        (("num_beam=2",), "num_beam"),
    ],
)
def test_bad_input_is_told(run, capsys, words, said):
    given = words if words[0].startswith("run=") else (f"run={run.path}", *words)
    assert call(*given) == 1
    error = capsys.readouterr().err
    assert said in error and "Traceback" not in error


def test_data_that_changed_since_is_refused(run, monkeypatch, capsys):
    from builder.experiments.folder import RunFolder

    said = RunFolder.summary
    monkeypatch.setattr(RunFolder, "summary", lambda self: said(self) | {"corpus": "another"})
    monkeypatch.setattr(sys, "argv", ["evaluate", f"run={getattr(run, 'path', run)}"])
    with pytest.raises(SystemExit) as stop:
        main(job, "evaluate")
    assert stop.value.code == 1 and "the data changed since" in capsys.readouterr().err

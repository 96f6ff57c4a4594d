"""What is loaded from a run folder is the model that was trained, with nothing needed from outside the folder."""

import shutil

import pytest
import torch

import builder.experiments.train as training
from builder import load_run
from tests.tiny_run import summary, trained


@pytest.fixture
def models(monkeypatch):
    """Every model that a run ends with."""
    kept = []
    monkeypatch.setattr(training, "answer", lambda model, *_: kept.append(model) or "")
    return kept


def test_the_logits_are_those_of_the_trained_model(tmp_path, models):
    path = trained(tmp_path, "model.embedding.dropout=0.1").path
    run = load_run(path, "last")
    assert not any(module.training for module in run.model.modules())
    assert run.model.n_tokens == len(run.tokenizer) == 258
    assert run.report.ok
    tokens = torch.randint(0, 256, (3, 16))
    with torch.no_grad():
        assert torch.equal(run.model(tokens).logits, models[0](tokens).logits)


def test_best_and_last_differ_where_the_best_came_earlier(tmp_path):
    # the learning rate only rises, so its lowest is at the first validation
    path = trained(tmp_path, "callbacks.best.monitor=optim/lr", "schedule.warmup_steps=12").path
    assert summary(path)["best"]["step"] == 4
    assert not torch.equal(*(load_run(path, name).model.embedding.weight for name in ("best", "last")))


def test_a_run_with_a_trained_tokenizer_moves_anywhere(tmp_path, models, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = trained(tmp_path, "tokenizer=bpe", "tokenizer.vocab_size=300", "model.vocab_size=320").path
    assert list((tmp_path / "cache").rglob("*.json"))
    shutil.move(path, tmp_path / "elsewhere")
    for gone in ("out", "cache"):
        shutil.rmtree(tmp_path / gone)
    (tmp_path / "text.txt").unlink()
    monkeypatch.chdir("/")
    run = load_run(tmp_path / "elsewhere")
    ids = run.tokenizer.encode("the cat sat on the log")
    assert run.tokenizer.decode(ids) == "the cat sat on the log"
    assert len(ids) < 22
    assert run.model.vocab_size == 320
    assert run.model.n_tokens == len(run.tokenizer) <= 300
    with torch.no_grad():
        assert torch.equal(run.model(torch.tensor([ids])).logits, models[0](torch.tensor([ids])).logits)

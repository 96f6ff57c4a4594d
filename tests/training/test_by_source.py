"""The validation loss of each source of a mixture, against loops over each source apart."""

import json

import pytest
import torch
from rich.console import Console

from builder import load_run
from builder.data import ValBatches, cache_folder, prepare
from builder.evaluation import evaluate
from builder.experiments.train import take_part, train
from builder.training.figures import names
from tests.data.runs import said
from tests.forked import in_ranks
from tests.tiny_run import rows, spec_of, trained, without_probes

MAKE = {"small": str.lower, "large": str.upper, "digits": lambda text: "".join(map(str, map(ord, text)))}
PACKINGS = {"small": "stream", "large": "documents", "digits": "padded"}
ALL = ("trainer.limit_val_batches=1.0", "batch.micro_batch=3", "trainer.max_steps=4")


def mixed(home, swapped=()):
    """Overrides for a mixture of texts of small letters, of capitals and of digits, each laid out in its own way."""
    for number, (name, make) in enumerate(MAKE.items(), 1):
        (home / name).mkdir(exist_ok=True)
        for place, text in enumerate(said(20 * number, seed=number)):
            (home / name / f"{place:02}.txt").write_text(make(text))
    folders = dict(zip(MAKE, MAKE, strict=True)) | dict(zip(swapped, swapped[::-1], strict=True))
    sources = {
        name: {"name": "text", "path": str(home / folder), "split": "documents", "packing": PACKINGS[folder]}
        for name, folder in folders.items()
    }
    given = [f"+data.sources.{name}={json.dumps(source).replace(chr(34), '')}" for name, source in sources.items()]
    return ("data=mixture", f"~data.path={home}/text.txt", "~data.sources.docs", *given)


def alone(spec, name):
    """The corpus of one source by itself."""
    return prepare(spec.model_copy(update={"data": spec.data.sources[name]}), cache=cache_folder())


@torch.no_grad()
def by_hand(model, corpus):
    """(summed loss, targets) in float64: each row by itself, each document of it by itself, each target by itself."""
    model, total, count = model.double(), 0.0, 0
    for pick in corpus.val.every().split(1):
        batch = corpus.val.rows(pick)
        (row,) = batch["tokens"]
        real = batch.get("attention_mask", torch.ones_like(batch["tokens"], dtype=torch.bool))[0]
        numbers = batch.get("segments", real[None].long())[0]
        for number in range(1, int(numbers.max()) + 1):
            tokens = row[(numbers == number) & real]
            for place in range(1, len(tokens)):
                logits = model(tokens[None, :place]).logits[0, -1]
                total -= torch.log_softmax(logits, -1)[tokens[place]].item()
                count += 1
    return total, count


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("mixture")
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        return home, trained(home, *mixed(home), *ALL)


def test_it_is_that_of_the_source_alone(run):
    _, folder = run
    kept = load_run(folder.path, "last")
    last = rows(folder.path)[-1]
    found = evaluate(kept.spec, kept.model, prepare(kept.spec, cache=cache_folder())).metrics
    sums = {name: by_hand(kept.model, alone(kept.spec, name)) for name in MAKE}
    for name, (total, count) in sums.items():
        assert last[f"val/{name}/loss"] == pytest.approx(total / count, rel=1e-5), name
        assert found[f"val/{name}/loss"] == pytest.approx(total / count, rel=1e-5), name
    total, count = map(sum, zip(*sums.values(), strict=True))
    assert last["val/loss"] == pytest.approx(total / count, rel=1e-5)
    parts = sum(found[f"val/{name}/loss"] * targets for name, (_, targets) in sums.items())
    assert found["val/loss"] == pytest.approx(parts / count, rel=1e-12), "token by token, and not source by source"
    assert len({round(last[f"val/{name}/loss"], 3) for name in MAKE}) == 3
    logged = {key for key in last if key.startswith("val/")}
    assert logged == {key for key in names(kept.spec) if key.startswith("val/")}, "what the checklist takes for logged"


def test_texts_that_change_places_change_it(run):
    home, folder = run
    kept = load_run(folder.path, "last")
    asked = spec_of(home, *mixed(home, swapped=("small", "digits")), *ALL)
    found = evaluate(asked, kept.model, prepare(asked, cache=cache_folder())).metrics
    last = rows(folder.path)[-1]
    for name, other in (("small", "digits"), ("large", "large"), ("digits", "small")):
        assert found[f"val/{name}/loss"] == pytest.approx(last[f"val/{other}/loss"], rel=1e-5)
    assert found["val/loss"] == pytest.approx(last["val/loss"], rel=1e-5)
    assert found["val/small/loss"] != pytest.approx(last["val/small/loss"], rel=1e-3)


def test_two_ranks_find_what_one_finds(run, tmp_path, monkeypatch):
    home, folder = run
    begin = lambda arguments, count: in_ranks(count, lambda _: take_part(**arguments))  # noqa: E731
    monkeypatch.setattr("builder.experiments.together.start", begin)
    way = ("trainer.devices=2", "trainer.strategy={_target_: builder.training.parallel.ddp}")
    spec = spec_of(home, *mixed(home), *ALL, *way, "batch.micro_batch=1", f"output.root={tmp_path}")
    assert any(len(alone(spec, name).val.every()) % 2 for name in MAKE), "a rank has a row that counts nothing"
    ours, theirs = (rows(path)[-1] for path in (train(spec, Console(quiet=True)).path, folder.path))
    assert {f"val/{name}/loss" for name in MAKE} <= set(ours) == set(theirs)
    assert ours == pytest.approx(theirs, rel=2e-6)


def test_what_a_limit_leaves_out_is_said_once(run, tmp_path, capsys):
    home, _ = run
    words = ("trainer.limit_val_batches=2", "trainer.max_steps=8", f"output.root={tmp_path}")
    told = [set(row) for row in rows(trained(home, *mixed(home), *words).path) if "val/loss" in row]
    kept = [{name for name in MAKE if f"val/{name}/loss" in keys} for keys in told]
    assert len(kept) == 2 and kept[0] == kept[1] and len(kept[0]) == 2
    (left,) = set(MAKE) - kept[0]
    lines = [line for line in capsys.readouterr().err.splitlines() if "left out" in line]
    assert len(lines) == 1 and f"val/{left}/loss" in lines[0] and "limit_val_batches=2" in lines[0]


def test_the_first_rows_hold_each_source_in_its_share(run):
    home, _ = run
    val = prepare(spec_of(home, *mixed(home)), cache=cache_folder()).val
    owners = val.part_of(val.every())
    shares = torch.bincount(owners) / len(owners)
    for count in range(1, len(owners) + 1):
        held = torch.bincount(owners[:count], minlength=3)
        assert ((held - shares * count).abs() <= 1.5).all()
    batches = ValBatches(val, batch=4)
    assert set(batches.owners[:3]) == {0, 1, 2}, "three batches are enough to hear of each"
    for owner, numbers in zip(batches.owners, batches.numbers, strict=True):
        assert set(owners[numbers].tolist()) == {owner}

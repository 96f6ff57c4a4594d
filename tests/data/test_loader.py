"""Batches: the gather against a loop, resuming, ranks, and the coverage of the validation split."""

from itertools import islice

import pytest
import torch

from builder.data import Shape, TrainBatches, ValBatches, train_loader, val_loader
from builder.data.order import batch_starts
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from builder.errors import ArchlabError


def stream(row, length=10, ahead=1):
    return Stream(torch.arange(row) if isinstance(row, int) else row, Shape(length, ahead), Bytes())


def test_train_rows_are_the_windows():
    tokens = torch.randint(256, (200,))
    batches = list(islice(TrainBatches(stream(tokens), batch=4, seed=2), 8))
    for step, batch in enumerate(batches):
        assert batch.keys() == {"tokens"} and batch["tokens"].dtype == torch.int64
        starts = batch_starts(200, 10, 4, 2, step).tolist()
        assert batch["tokens"].tolist() == [[int(tokens[start + i]) for i in range(11)] for start in starts]


def test_resuming_equals_not_having_stopped():
    run = [batch["tokens"] for batch in islice(train_loader(stream(200), batch=4, seed=2), 30)]
    resumed = train_loader(stream(200), batch=4, seed=2, start_step=13)
    for expected, batch in zip(run[13:], resumed, strict=False):
        assert torch.equal(expected, batch["tokens"])
    assert not torch.equal(run[13], run[0])


def test_ranks_share_one_global_batch():
    whole = TrainBatches(stream(500), batch=6, seed=0).at(9)["tokens"]
    for rank in range(3):
        part = TrainBatches(stream(500), batch=6, seed=0, rank=rank, world=3).at(9)["tokens"]
        assert torch.equal(part, whole[rank::3])


def targets(batches):
    """The positions predicted, by loops; tokens equal their own position here."""
    found = []
    for batch in batches:
        mask = batch.get("attention_mask", torch.ones_like(batch["tokens"], dtype=torch.bool))
        for row, real in zip(batch["tokens"].tolist(), mask.tolist(), strict=True):
            for place in range(1, len(row)):
                if real[place]:
                    assert real[place - 1] and row[place - 1] == row[place] - 1  # predicted from the token before it
                    found.append(row[place])
    return found


@pytest.mark.parametrize("n", [2, 3, 10, 11, 12, 40, 41, 42, 50])
@pytest.mark.parametrize("batch", [1, 3, 8])
def test_every_validation_token_is_a_target_once(n, batch):
    batches = list(val_loader(stream(n), batch=batch))
    assert targets(batches) == list(range(1, n))
    assert len(batches) == len(val_loader(stream(n), batch=batch))
    assert all(len(b["tokens"]) <= batch and b["tokens"].shape[1] == 11 for b in batches)


@pytest.mark.parametrize("n", [2, 11, 42, 55, 101])
@pytest.mark.parametrize(("batch", "world"), [(2, 2), (4, 2), (6, 3), (4, 4)])
def test_ranks_cover_the_validation_split_together_in_step(n, batch, world):
    runs = [list(val_loader(stream(n), batch=batch, rank=r, world=world)) for r in range(world)]
    assert sorted(t for run in runs for t in targets(run)) == list(range(1, n))
    assert len({len(run) for run in runs}) == 1
    for batches in zip(*runs, strict=True):
        assert len({b["tokens"].shape for b in batches}) == 1
        for b in batches:
            assert b.get("attention_mask", torch.ones(1, 1, dtype=torch.bool))[:, 0].all()  # no row without a token


def test_only_padding_brings_a_mask_and_it_is_exact():
    batches = list(ValBatches(stream(25), batch=2))
    assert [sorted(batch) for batch in batches] == [["tokens"], ["attention_mask", "tokens"]]
    assert batches[1]["tokens"].tolist() == [[20, 21, 22, 23, 24] + [257] * 6]
    assert batches[1]["attention_mask"].tolist() == [[True] * 5 + [False] * 6]
    assert batches[1]["attention_mask"].dtype == torch.bool
    assert all("attention_mask" not in batch for batch in ValBatches(stream(21), batch=2))


@pytest.mark.parametrize(("batch", "world"), [(5, 2), (1, 2), (0, 1)])
def test_ranks_that_cannot_share_a_batch(batch, world):
    for make in (lambda **k: train_loader(stream(200), seed=0, **k), lambda **k: val_loader(stream(50), **k)):
        with pytest.raises(ArchlabError, match=f"found {batch} rows on {world} processes[\\s\\S]*fix:"):
            make(batch=batch, rank=0, world=world)

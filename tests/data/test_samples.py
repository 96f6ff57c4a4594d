"""Rows of every layout and kind: pure in seed and step, whole over ranks, and each of validation's once."""

from itertools import islice

import pytest
import torch

from builder.data import Shape, TrainBatches, ValBatches
from builder.data.ragged import Ragged
from builder.data.samples import MASKS
from builder.data.samples.documents import Documents, best_fit
from builder.data.samples.padded import Texts
from builder.data.samples.stream import Stream
from builder.data.tokenizer.bytes import Bytes
from tests.data.runs import CASES, corpus, said

KINDS = {"pairs": "pairs", "labelled": "labelled", "contrastive": "contrastive", "reverse pairs": "pairs"}


@pytest.fixture(params=CASES)
def made(request, tmp_path):
    """(kind, corpus) of every case."""
    return KINDS.get(request.param, "text"), corpus(request.param, tmp_path)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_batch_has_the_keys_of_its_kind(made):
    kind, held = made
    needed = {"pairs": {"source"}, "labelled": {"labels"}, "contrastive": {"other"}, "text": set()}[kind] | {"tokens"}
    allowed = (
        needed | {MASKS[key] for key in needed if key in MASKS} | ({"segments", "counted"} if kind == "text" else set())
    )
    assert held.kind == kind and held.largest_id < len(held.tokenizer)
    for batch in [*islice(TrainBatches(held.train, batch=6, seed=0), 5), *ValBatches(held.val, batch=6)]:
        assert needed <= batch.keys() <= allowed
        for key in needed & MASKS.keys():
            tokens, real = batch[key], batch.get(MASKS[key], torch.ones_like(batch[key], dtype=torch.bool))
            assert tokens.dtype == torch.int64 and len(tokens) == len(batch["tokens"])
            assert torch.equal(real, tokens != held.tokenizer.pad)  # which no text holds
            assert (real.long().diff(dim=1) <= 0).all() and real[:, 0].all()  # padded on the right


def test_a_step_is_a_function_of_seed_and_step(made):
    held = made[1]
    run = list(islice(TrainBatches(held.train, batch=6, seed=3), 12))  # several epochs of what has any
    assert all(same(run[step], TrainBatches(held.train, batch=6, seed=3).at(step)) for step in (11, 0, 7))
    resumed = TrainBatches(held.train, batch=6, seed=3, start_step=9)
    assert all(same(*pair) for pair in zip(run[9:], resumed, strict=False))
    assert not same(run[4], run[5]) and not same(run[4], TrainBatches(held.train, batch=6, seed=4).at(4))


def test_ranks_share_one_global_batch(made):
    held, heard = made[1], []

    def collate(batch, draws):
        heard.append(draws)
        return batch

    whole = TrainBatches(held.train, batch=6, seed=0, collate=collate).at(2)
    for rank in range(3):
        part = TrainBatches(held.train, batch=6, seed=0, collate=collate, rank=rank, world=3).at(2)
        assert part.keys() == whole.keys()
        assert all(torch.equal(part[key], whole[key][rank::3]) for key in whole)  # padded alike, too
        assert heard[-1] == heard[0][rank::3]
    assert len(set(heard[0])) == 6
    TrainBatches(held.train, batch=6, seed=0, collate=collate).at(3)
    assert not set(heard[-1]) & set(heard[0])


def counted(samples, batch):
    return batch.get("counted", torch.ones_like(samples.targets(batch), dtype=torch.bool))


def test_ranks_validate_every_row_once_and_fillers_count_nothing(made):
    val = made[1].val
    rows = len(val.every())
    world = next(count for count in (4, 5, 7) if rows % count)  # so that the last batch is filled up
    alone = list(ValBatches(val, batch=2 * world))
    ranks = [list(ValBatches(val, batch=2 * world, rank=rank, world=world)) for rank in range(world)]
    assert {len(run) for run in ranks} == {-(-rows // (2 * world))}
    for number, whole in enumerate(alone):
        parts = [run[number] for run in ranks]
        assert len({frozenset(part) for part in parts}) == 1 and len({part["tokens"].shape for part in parts}) == 1
        for key in whole:
            joined = torch.stack([part[key] for part in parts], 1).flatten(0, 1)  # rows in turn
            assert torch.equal(joined[: len(whole[key])], whole[key])
            assert counted(val, whole).sum() == sum(counted(val, part).sum() for part in parts)
        filler = torch.stack([part["tokens"] for part in parts], 1).flatten(0, 1)[len(whole["tokens"]) :]
        assert (filler[:, 1:] == val.pad).all() and (filler[:, 0] != val.pad).all()


def row_of(texts):
    return Bytes().encode_corpus(texts)


def pieces_of(texts, length, ahead):
    """The pieces of every text, by a loop: windows of length + ahead every length tokens."""
    found = []
    for text in texts:
        tokens, start = [*text.encode(), 256], 0
        while start + ahead < len(tokens):
            found.append(tokens[start : start + length + ahead])
            start += length
    return found


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("length", [1, 7, 24, 100])
def test_documents_are_packed_whole_and_apart(length, ahead):
    texts = [*said(40), ""]
    samples = Documents(row_of(texts), Shape(length, ahead), Bytes())
    met = []
    for batch in ValBatches(samples, batch=4):
        for row, numbers in zip(batch["tokens"].tolist(), batch["segments"].tolist(), strict=True):
            assert len(row) == length + ahead and numbers == sorted(numbers, key=lambda number: number or 10**9)
            filled = [number for number in numbers if number]
            assert sorted(set(filled)) == list(range(1, max(filled) + 1))
            met += [[token for token, at in zip(row, numbers, strict=True) if at == n] for n in sorted(set(filled))]
    assert sorted(met) == sorted(pieces_of(texts, length, ahead))
    if length == 100:
        assert len(samples.every()) < 0.5 * len(met)  # packed at all


@pytest.mark.parametrize("ahead", [0, 1])
def test_one_document_a_row_and_little_padding(ahead):
    texts = said(300)
    samples = Texts(row_of(texts), Shape(40, ahead), Bytes())
    rows = [row[row != 257].tolist() for batch in ValBatches(samples, batch=7) for row in batch["tokens"]]
    assert sorted(rows) == sorted(pieces_of(texts, 40, ahead))
    batches = list(islice(TrainBatches(samples, batch=8, seed=0), 30))
    padding = sum(int((batch["tokens"] == 257).sum()) for batch in batches) / sum(b["tokens"].numel() for b in batches)
    assert padding < 0.05  # 0.27 in any order
    widths = [batch["tokens"].shape[1] for batch in batches]
    assert widths != sorted(widths) and max(widths) == 40 + ahead


@pytest.mark.parametrize("layout", [Documents, Texts])
@pytest.mark.parametrize("batch", [1, 7, 64])
def test_an_epoch_holds_every_row_once(layout, batch):
    samples = layout(row_of(said(50)), Shape(24), Bytes())
    count = len(samples.every())
    run = torch.cat([samples.picks(5, step, batch) for step in range(1 + 3 * count // batch)])
    epochs = run[: 3 * count].view(3, count)
    assert all(sorted(epoch.tolist()) == list(range(count)) for epoch in epochs)
    assert epochs[0].tolist() != epochs[1].tolist()


def test_asked_for_less_than_the_next_token_each_token_is_read_once():
    """The windows of masked tokens stand end to end; those of next tokens share one."""
    batches = ValBatches(Stream(torch.arange(43), Shape(10, 0), Bytes()), batch=3)
    assert torch.cat([batch["tokens"].flatten() for batch in batches]).tolist() == [*range(43), *[257] * 7]
    starts = Stream(torch.arange(40), Shape(10, 0), Bytes()).picks(0, 0, 3)
    assert len(set(starts.tolist())) == 3 and all(0 <= start <= 30 for start in starts.tolist())
    whole = Stream(torch.arange(10), Shape(10, 0), Bytes())
    assert whole.rows(whole.picks(0, 0, 1))["tokens"].tolist() == [list(range(10))]


def test_packing_is_near_the_fewest_rows_and_never_over():
    """Johnson et al. 1974: best-fit decreasing needs at most 11/9 of the fewest rows and 4; the tokens bound those."""
    lengths = torch.randint(1, 101, (2000,), generator=torch.Generator().manual_seed(0))
    rows = best_fit(lengths, 100)
    assert sorted(piece for row in rows for piece in row) == list(range(2000))
    assert max(sum(int(lengths[piece]) for piece in row) for row in rows) <= 100
    assert len(rows) <= 11 / 9 * -(-int(lengths.sum()) // 100) + 4
    assert len(best_fit(torch.tensor([60, 30, 40, 70]), 100)) == 2  # 70 + 30 and 60 + 40, by hand


def test_at_another_length(tmp_path):
    for case in CASES:
        val = corpus(case, tmp_path).val
        widths = [max(batch["tokens"].shape[1] for batch in ValBatches(val.at(n), batch=4)) for n in (24, 48)]
        fixed = case in ("pairs", "labelled", "contrastive", "chat padded")
        assert widths[0] == widths[1] if fixed else widths[0] < widths[1], case


def test_the_first_tokens_are_those_of_the_text():
    row = row_of(said(30))
    assert torch.equal(Stream(row, Shape(8), Bytes()).first(50), row[:50])
    for layout in (Documents, Texts):
        found = layout(row, Shape(1000), Bytes()).first(10**9)
        assert sorted(found.tolist()) == sorted(row.tolist())


def test_pieces_of_other_rows_than_tensors():
    """What a row must do: give integers of any width for an index."""
    row = row_of(said(10))
    small = row.to(torch.int16)
    for layout in (Stream, Documents, Texts):
        one, other = layout(row, Shape(8), Bytes()), layout(small, Shape(8), Bytes())
        assert same(one.rows(one.every()), other.rows(other.every()))
    assert len(Ragged.of(row, 256)) == 10

"""Objectives beyond the next token: what each hides, asks and counts, from loops and from what it must give back."""

import pytest
import torch
import torch.nn.functional as F

from builder import registry
from tests.tiny_run import MOE, rows, trained

T5_EXAMPLE = [5, 6, 7, 8, 9, 10, 11, 12]


@pytest.fixture
def made():
    """made(name, **knobs): the objective, and a tokenizer of bytes with the special tokens that it writes."""

    def make(name, **knobs):
        kind = registry.find("objective", name)
        config = kind.Config(name=name, **knobs)
        words = registry.find("tokenizer", "bytes")
        return kind(config), words.prepare(words.Config(name="bytes", specials=kind.specials(config)), [], None)

    return make


def text(rows=64, length=100, seed=0):
    return torch.randint(97, 123, (rows, length), generator=torch.Generator().manual_seed(seed))


def test_masked_hides_shares_as_published(made):
    objective, tokenizer = made("masked")
    tokens = text()
    batch = objective.collate({"tokens": tokens}, list(range(64)), tokenizer)
    task = objective.task(batch)
    chosen, mask = task.loss_mask, tokenizer.named["mask"]
    assert torch.equal(task.targets, tokens) and torch.equal(task.inputs[~chosen], tokens[~chosen])
    assert chosen.sum(1).tolist() == [15] * 64  # 15% of 100, in every row
    hidden = (task.inputs == mask) & chosen
    kept = (task.inputs == tokens) & chosen
    count = int(chosen.sum())
    assert abs(int(hidden.sum()) / count - 0.8) < 0.04 and abs(int(kept.sum()) / count - 0.1) < 0.04
    assert not (task.inputs == mask)[~chosen].any()


def test_what_is_drawn_for_a_row_depends_on_its_number_alone(made):
    tokens = text(4)
    for name in ("masked", "prefix_lm", "span_corruption"):
        objective, tokenizer = made(name)
        whole = objective.collate({"tokens": tokens}, [7, 8, 9, 10], tokenizer)
        part = objective.collate({"tokens": tokens[2:]}, [9, 10], tokenizer)
        assert all(torch.equal(whole[key][2:], part[key]) for key in part), name
        other = objective.collate({"tokens": tokens[2:]}, [9, 11], tokenizer)
        assert any(other[key].shape != part[key].shape or not torch.equal(other[key], part[key]) for key in part), name


def test_special_tokens_and_padding_are_never_chosen(made):
    objective, tokenizer = made("masked", share=0.9)
    tokens, real = text(8, 20), torch.arange(20).expand(8, -1) < 12
    tokens = torch.where(torch.arange(20) % 4 == 0, tokenizer.eos, tokens).masked_fill(~real, tokenizer.pad)
    chosen = objective.collate({"tokens": tokens, "attention_mask": real}, list(range(8)), tokenizer)["chosen"]
    assert not chosen[:, ::4].any() and not chosen[~real].any()
    assert chosen.sum(1).tolist() == [8] * 8  # round(0.9 * 9)
    nothing = torch.full((1, 5), tokenizer.eos)
    assert not objective.collate({"tokens": nothing}, [0], tokenizer)["chosen"].any()


def test_spans_are_hidden_together(made):
    objective, tokenizer = made("masked", span=5)
    chosen = objective.collate({"tokens": text()}, list(range(64)), tokenizer)["chosen"]
    runs = (chosen[:, 1:] & ~chosen[:, :-1]).sum() + chosen[:, 0].sum()
    assert chosen.sum() / runs >= 4  # of one token each there would be about 1.2
    assert 0.09 < chosen.float().mean() < 0.16  # spans that meet hide less


def test_spans_that_are_cut_out_give_the_text_back(made):
    objective, tokenizer = made("span_corruption")
    tokens = text(32, 60)
    batch = objective.collate({"tokens": tokens}, list(range(32)), tokenizer)
    marks = {tokenizer.named[f"sentinel_{n}"]: n for n in range(100)}
    for row in range(32):
        source = batch["source"][row][batch["source_mask"][row]].tolist()
        target = batch["tokens"][row][batch["attention_mask"][row]].tolist()
        assert target[0] == tokenizer.start and target[-1] == tokenizer.eos
        spans, number = {}, None
        for token in target[1:-1]:
            number = marks.get(token, number)
            spans.setdefault(number, []) if token in marks else spans[number].append(token)
        back = [piece for token in source for piece in (spans[marks[token]] if token in marks else [token])]
        assert back == tokens[row].tolist()
        assert sum(map(len, spans.values())) == 9 and len(spans) == 3  # 15% of 60, three a span
        assert [marks[token] for token in source if token in marks] == list(range(3))
        assert source[0] not in marks and all(spans.values())
    task = objective.task(batch)
    assert torch.equal(task.inputs[:, 1:], task.targets[:, :-1]) and task.source is batch["source"]
    assert task.targets[task.loss_mask].eq(tokenizer.eos).sum() == 32  # the end is learnt, in every row


def test_a_prefix_is_no_target(made):
    objective, tokenizer = made("prefix_lm")
    tokens = text(16, 41)
    task = objective.task(objective.collate({"tokens": tokens}, list(range(16)), tokenizer))
    lengths = task.prefix.sum(1)
    for row, length in enumerate(lengths.tolist()):
        assert task.prefix[row].tolist() == [True] * length + [False] * (40 - length)
        assert task.loss_mask[row].tolist() == [False] * (length - 1) + [True] * (41 - length)
    assert 1 <= lengths.min() < 12 and 28 < lengths.max() <= 40
    counted = torch.arange(41)[None] >= 30
    task = objective.task(objective.collate({"tokens": tokens[:1], "counted": counted}, [0], tokenizer))
    assert task.prefix.sum() == 30 and task.loss_mask.nonzero()[:, 1].tolist() == list(range(29, 40))


def test_each_document_of_a_packed_row_has_a_prefix(made):
    objective, tokenizer = made("prefix_lm")
    segments = torch.tensor([[1] * 9 + [2] * 8 + [0] * 4])
    batch = {"tokens": text(1, 21), "segments": segments, "attention_mask": segments > 0}
    prefix = objective.collate(batch, [3], tokenizer)["prefix"][0].tolist()
    one, two = prefix[:9], prefix[9:17]
    assert one == sorted(one, reverse=True) and two == sorted(two, reverse=True) and one[0] and two[0]
    assert not one[-1] and not two[-1] and not any(prefix[17:])


def test_packed_documents_are_no_targets_of_each_other(made):
    tokens, segments = torch.tensor([[5, 6, 2, 7, 8, 2, 0]]), torch.tensor([[1, 1, 1, 2, 2, 2, 0]])
    batch = {"tokens": tokens, "segments": segments, "attention_mask": segments > 0}
    objective, _ = made("next_token")
    task = objective.task(batch)
    assert task.targets[task.loss_mask].tolist() == [6, 2, 8, 2]
    objective, _ = made("next_token", across_documents=True)
    task = objective.task(batch)
    assert task.targets[task.loss_mask].tolist() == [6, 2, 7, 8, 2]


def test_only_answers_are_counted(made):
    objective, _ = made("next_token")
    counted = torch.tensor([[False, False, False, True, True]])
    task = objective.task({"tokens": torch.tensor([[1, 2, 3, 4, 5]]), "counted": counted})
    assert task.targets[task.loss_mask].tolist() == [4, 5] and task.attention_mask is None


def test_targets_of_a_pair_are_shifted_once(made):
    """C31: the logits at t are asked for token t + 1 of [start, y_1 .. eos], once."""
    objective, _ = made("seq2seq")
    tokens = torch.tensor([[9, 4, 5, 2], [9, 6, 2, 0]])
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    source = torch.tensor([[1, 2, 3], [3, 2, 1]])
    task = objective.task({"tokens": tokens, "attention_mask": real, "source": source})
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0))
    total, count = objective.loss(logits, task)
    wanted = sum(F.cross_entropy(logits[b, t], tokens[b, t + 1]) for b, t in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)))
    assert count == 5 and (total - wanted).abs() < 1e-6
    assert torch.equal(task.source, source)


@pytest.mark.parametrize("name", ["next_token", "classification"])
def test_label_smoothing_is_that_of_torch_and_not_of_a_validation(made, name):
    objective, _ = made(name, label_smoothing=0.1)
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(6) % 5
    smooth, plain = (objective.nats(logits, targets, None, smooth=flag) for flag in (True, False))
    assert smooth.item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1).item())
    assert plain.item() == pytest.approx(F.cross_entropy(logits, targets, reduction="sum").item())
    assert abs(smooth - plain) > 1e-2


def test_figures_of_classes_are_those_of_torchmetrics(made):
    from torchmetrics.functional.classification import multiclass_accuracy, multiclass_f1_score

    objective, _ = made("classification")
    draw = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(50, 4, generator=draw), torch.randint(0, 4, (50,), generator=draw)
    task = objective.task({"tokens": torch.zeros(50, 3, dtype=torch.long), "labels": labels})
    found = objective.metrics(objective.measure(logits, task), 50)
    assert found["accuracy"] == pytest.approx(multiclass_accuracy(logits, labels, 4, average="micro").item())
    assert found["f1"] == pytest.approx(multiclass_f1_score(logits, labels, 4, average="macro").item())
    tags = labels.view(10, 5).clone()
    tags[:, 3:] = -1  # no label
    task = objective.task({"tokens": torch.zeros(10, 5, dtype=torch.long), "labels": tags})
    kept = logits.view(10, 5, 4)
    total, count = objective.loss(kept, task)
    assert count == 30
    assert (total - F.cross_entropy(kept[:, :3].flatten(0, 1), tags[:, :3].flatten(), reduction="sum")).abs() < 1e-4
    accuracy = objective.metrics(objective.measure(kept, task), 30)["accuracy"]
    assert accuracy == pytest.approx((kept[:, :3].argmax(-1) == tags[:, :3]).float().mean().item())


def test_contrast_is_over_the_rows_of_the_batch(made):
    objective, _ = made("contrastive", temperature=0.5)
    one, other = torch.tensor([[1, 2, 0], [3, 0, 0]]), torch.tensor([[4, 5], [6, 7]])
    task = objective.task({"tokens": one, "attention_mask": one > 0, "other": other})
    tokens, beside = task.read
    assert tokens.tolist() == [[1, 2, 0], [4, 5, 0], [3, 0, 0], [6, 7, 0]]
    assert beside["attention_mask"].int().sum(1).tolist() == [2, 2, 1, 2]
    vectors = F.normalize(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    a, b = vectors[::2], vectors[1::2]
    wanted = 0.0
    for i in range(2):
        for x, ys in ((a[i], b), (b[i], a)):
            scores = torch.stack([x @ y / 0.5 for y in ys])
            wanted += 0.5 * (scores.logsumexp(0) - scores[i])
    total, count = objective.loss(vectors, task)
    assert count == 2 and (total - wanted).abs() < 1e-6


def test_tasks_are_split_with_all_that_they_hold(made):
    objective, tokenizer = made("span_corruption")
    task = objective.task(objective.collate({"tokens": text(5, 30)}, list(range(5)), tokenizer))
    parts = task.split(2)
    assert [len(part.inputs) for part in parts] == [2, 2, 1]
    assert torch.equal(torch.cat([part.source for part in parts]), task.source)
    assert sum(int(part.counts[0]) for part in parts) == int(task.counts[0])


@pytest.mark.parametrize("name", registry.names("objective"))
def test_a_blank_batch_is_one_that_can_be_trained_on(made, name):
    objective, _ = made(name)
    batch = objective.blank(4, 32, "cpu")
    task = objective.task({key: torch.zeros_like(value) for key, value in batch.items()})
    tokens, beside = task.read
    assert tokens.ndim == 2 and task.targets.shape[0] == 4
    assert all(value.shape[0] in (4, 8) for value in beside.values())


def test_experts_on_both_sides_are_counted(tmp_path):
    """A mixture in either tower: the load is logged by layer, the encoder's behind the decoder's."""
    kinds = ["model=encoder_decoder", "model.cross.n_heads=2", "objective=span_corruption"]
    layers = ["model.n_layers=1", "model.encoder={n_layers:1,pattern:[attention+moe]}", *MOE[:1], *MOE[3:]]
    path = trained(tmp_path, *kinds, *layers, "model.pattern=[attention+cross+moe]", "~model.ffn").path
    assert {"0", "1", "all"} == {key.split("/")[1] for row in rows(path) for key in row if key.startswith("moe/")}

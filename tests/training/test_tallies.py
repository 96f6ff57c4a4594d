"""What one optimizer step counts: the sum of its passes, over ranks, told once; validation counts nothing."""

import copy
from types import SimpleNamespace

import pytest
import torch

from builder import build
from builder.training.module import Training
from builder.training.tallies import Tallies
from tests.tiny_run import MOE, spec_of

SPEED = 2.0**-10


def alone(tally):
    """The sum over ranks, where there is one."""
    return tally


@pytest.fixture
def training(tmp_path, monkeypatch):
    """The LightningModule of the tiny run with experts, without a trainer and before any log line."""
    monkeypatch.setattr(Training, "_log_every", 10)
    spec = spec_of(tmp_path, *MOE, f"model.moe.balance.bias_speed={SPEED}")
    return Training(spec, build(spec.model, seed=0), SimpleNamespace(val_bytes_per_token=0.5))  # type: ignore[arg-type]


@pytest.fixture
def batches():
    """Two batches of unlike tokens, so that they choose unlike experts."""
    return [{"tokens": torch.randint(low, low + 8, (4, 17))} for low in (0, 200)]


def one_pass(training, batch):
    """One pass over a batch, counted as a step counts its passes."""
    training.tallies.add(training.step.losses(batch)[2])


def parts(training):
    return [training.model.layers[layer].ffn for layer in (0, 2)]


def preferences(training):
    return [part.router.preference.clone() for part in parts(training)]


def counted(training, batch):
    """What one pass over a batch counts, by part in order, with nothing changed."""
    aux = copy.deepcopy(training.model).train()(batch["tokens"][:, :-1]).aux
    return [tally[:4].clone() for tally in aux.tallies.values()]


def moved(counts):
    return SPEED * (counts.double().mean() - counts).sign().float()


def test_preferences_move_once_by_the_sum_of_the_passes(training, batches):
    first, second = (counted(training, batch) for batch in batches)
    for batch in batches:
        one_pass(training, batch)
    assert not any(preference.any() for preference in preferences(training)), "a pass alone moves nothing"
    training.tallies.settle(alone)
    sums = [a + b for a, b in zip(first, second, strict=True)]
    assert all(total.sum() == 2 * 4 * 16 * 2 for total in sums)
    for preference, total, a, b in zip(preferences(training), sums, first, second, strict=True):
        assert torch.equal(preference, moved(total))
        assert not torch.equal(preference, moved(a) + moved(b)), "settled after each pass it would be another"
    before = preferences(training)
    training.tallies.settle(alone)
    assert all(map(torch.equal, preferences(training), before)), "what was settled is not settled again"


def handed_over(rank):
    """What a rank would hand to the sum over ranks."""
    handed = []
    copy.deepcopy(rank).tallies.settle(lambda tally: handed.append(tally) or tally)
    return handed[0]


def test_ranks_count_together(training, batches):
    """Two ranks read a batch each, and end as one that reads both."""
    ranks, both = [training, copy.deepcopy(training)], copy.deepcopy(training)
    for rank, batch in zip(ranks, batches, strict=True):
        one_pass(rank, batch)
        one_pass(both, batch)
    handed = [handed_over(rank) for rank in ranks]
    assert len(handed[0]) == 2 * (4 + 2), "one sum for all layers"
    assert not torch.equal(handed[0], handed[1]), "the ranks counted unlike things"
    for rank in ranks:
        rank.tallies.settle(lambda tally: handed[0] + handed[1])
    both.tallies.settle(alone)
    for rank in ranks:
        assert all(map(torch.equal, preferences(rank), preferences(both)))
        assert all(map(torch.equal, rank.tallies.window.values(), both.tallies.window.values()))
    one = copy.deepcopy(both)
    one.tallies.restart()
    one_pass(one, batches[0])
    one.tallies.settle(alone)
    assert not all(map(torch.equal, one.tallies.window.values(), both.tallies.window.values())), "half is not the sum"


def test_validation_counts_nothing(training, batches):
    training.eval()
    training.owners = [0]
    training.on_validation_epoch_start()
    training.validation_step(batches[0], 0)
    training.tallies.settle(alone)
    assert not training.tallies.window
    assert not any(preference.any() for preference in preferences(training))
    training.train()
    one_pass(training, batches[0])
    training.tallies.settle(alone)
    assert training.tallies.window
    assert all(preference.any() for preference in preferences(training))


def test_a_window_is_all_steps_since_its_restart(training, batches):
    for batch in batches:
        one_pass(training, batch)
        training.tallies.settle(alone)
    assert [tally[:4].sum() for tally in training.tallies.window.values()] == [2 * 4 * 16 * 2] * 2
    training.tallies.restart()
    assert not training.tallies.window
    one_pass(training, batches[0])
    training.tallies.settle(alone)
    assert [tally[:4].sum() for tally in training.tallies.window.values()] == [4 * 16 * 2] * 2


def test_what_is_saved_is_what_comes_back(training, batches):
    one_pass(training, batches[0])
    training.tallies.settle(alone)
    state = training.tallies.state(training.model)
    assert list(state) == ["layers.0.ffn", "layers.2.ffn"]
    other = Tallies()
    other.restore(training.model, state, torch.device("cpu"))
    assert list(other.window) == parts(training)
    assert all(torch.equal(other.window[part], training.tallies.window[part]) for part in parts(training))

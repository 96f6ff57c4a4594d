"""The order of samples: pure in seed and step, each window once per epoch, each token at most once a target."""

import pytest
import torch

from builder.data.order import batch_starts, per_epoch, windows

SIZES = [(9, 8), (16, 8), (17, 8), (24, 8), (25, 8), (1000, 7), (1003, 64), (100, 1)]


@pytest.mark.parametrize(("n", "length"), SIZES)
def test_windows_fit_and_share_no_target(n, length):
    for epoch in range(20):
        starts = windows(n, length, 3, epoch).tolist()
        assert len(starts) == per_epoch(n, length) >= 1
        targets = [start + 1 + offset for start in starts for offset in range(length)]
        assert len(set(targets)) == len(targets) and min(targets) >= 1 and max(targets) < n


@pytest.mark.parametrize(("n", "length"), SIZES)
def test_an_epoch_leaves_out_less_than_two_windows(n, length):
    assert n - 1 - per_epoch(n, length) * length < 2 * length


def test_all_tokens_are_targets_over_the_epochs():
    met = {int(start) + 1 + offset for epoch in range(200) for start in windows(61, 8, 0, epoch) for offset in range(8)}
    assert met == set(range(1, 61))


def test_epochs_differ_in_phase_and_order():
    phases = {int(windows(1000, 50, 0, epoch).min()) for epoch in range(20)}
    assert len(phases) > 5
    first, second = windows(1000, 50, 0, 0), windows(1000, 50, 0, 1)
    assert (first // 50).tolist() != (second // 50).tolist()
    assert first.tolist() != sorted(first.tolist())  # shuffled at all


def test_seeds_differ_and_none_is_another_one_epoch_later():
    runs = {tuple(windows(1000, 10, seed, epoch).tolist()) for seed in range(6) for epoch in range(6)}
    assert len(runs) == 36


@pytest.mark.parametrize("batch", [1, 4, 7, 50])  # 50: more than two epochs in one batch
def test_a_run_is_the_concatenation_of_its_epochs(batch):
    n, length, seed = 200, 10, 5
    count = per_epoch(n, length)
    expected = [int(start) for epoch in range(12) for start in windows(n, length, seed, epoch)]
    run = [int(start) for step in range(200 // batch) for start in batch_starts(n, length, batch, seed, step)]
    assert run == expected[: len(run)] and len(run) > 3 * count


def test_a_step_computed_afresh_equals_the_step_of_a_run():
    run = [batch_starts(300, 10, 4, 1, step) for step in range(40)]
    for step in (39, 0, 17, 18):
        windows.cache_clear()
        assert torch.equal(batch_starts(300, 10, 4, 1, step), run[step])


def test_the_order_is_the_same_in_every_process():
    """Pinned: a change here changes what every resumed run reads."""
    import hashlib

    draw = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(b"7/2").digest()[:7], "little"))
    phase, order = int(torch.randint(5, (), generator=draw)), torch.randperm(9, generator=draw)
    assert windows(50, 5, 7, 2).tolist() == [phase + 5 * int(place) for place in order]


def test_too_few_tokens():
    with pytest.raises(ValueError, match="8 tokens hold no window of 8"):
        batch_starts(8, 8, 1, 0, 0)

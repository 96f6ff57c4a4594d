"""What every test stands on: no hub, no W&B server, one thread per worker, a fixed seed, and its turn."""

import os

os.environ.update(
    HF_HUB_OFFLINE="1",  # before anything imports transformers
    TOKENIZERS_PARALLELISM="false",
    WANDB_ERROR_REPORTING="false",
    WANDB_MODE="offline",
    WANDB_SILENT="true",
)
os.environ["OMP_NUM_THREADS"] = "1"  # tiny tensors gain nothing from two, and suffer when others run

from collections import defaultdict
from datetime import date
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)
TODAY = os.environ.setdefault("TURN_OF_TESTS", str(date.today().toordinal()))  # one day for all workers


def have_their_turn(count: int, n: int, day: int) -> list[bool]:
    """Which of `count` tests run on a day: every n-th, another one each day; less than n, which were asked for, all."""
    return [count < n or (number + day) % n == 0 for number in range(count)]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a file's tests that are marked `turns(n)` those that don't have their turn are slow ones today.

    The files beside this one go first: some take a minute, and a worker should not end alone with one.
    """
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)
    marked: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("turns")) is not None:
            marked[str(item.path), mark.args[0]].append(item)
    for (_, n), some in marked.items():
        for item, runs in zip(some, have_their_turn(len(some), n, int(TODAY)), strict=True):
            if not runs:
                item.add_marker("slow")


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seeds torch before every test, so that a test gives the same numbers alone and in company."""
    torch.manual_seed(0)
    return 0

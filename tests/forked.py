"""Several ranks without the price of starting them: forks of this process, which meet over gloo."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from typing import Any

import torch

from builder.experiments.together import _environment, _free_port

TIMEOUT = 60
"""Seconds after which ranks that still run are taken for hung."""


def in_ranks(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(rank)` returns in each of `count` processes; raises AssertionError with what one of them raised."""
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    answers, port = context.SimpleQueue(), _free_port()

    def run(rank: int) -> None:
        os.environ |= _environment(rank, count, port)
        try:
            answers.put((rank, work(rank), None))
        except BaseException:
            answers.put((rank, None, traceback.format_exc()))
        os._exit(0)

    ranks = [context.Process(target=run, args=(rank,)) for rank in range(count)]
    for process in ranks:
        process.start()
    told: dict[int, Any] = {}
    try:
        for process in ranks:
            while answers.empty() and process.is_alive():
                process.join(0.05)
            process.join(TIMEOUT)
            assert not process.is_alive(), "a rank hangs"
        while not answers.empty():
            rank, answer, fault = answers.get()
            assert fault is None, f"rank {rank}:\n{fault}"
            told[rank] = answer
    finally:
        for process in ranks:
            process.kill()
    assert len(told) == count, "a rank died"
    return [told[rank] for rank in range(count)]

"""How much memory training takes: two steps in a process of their own, so that no measurement hides another."""

from __future__ import annotations

import contextlib
import ctypes
import signal
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from builder.errors import ArchlabError
from builder.load import load
from builder.resident import resident_peak

from .contender import Contender, Ours
from .peer import Peer
from .settings import Workload
from .work import TrainingStep

KINDS = {"cuda": "what torch allocated", "cpu": "growth of its own process"}
"""What the number means, by device."""


def peak(config: dict[str, Any], work: Workload, folder: Path | None) -> int:
    """Peak bytes of training: weights, gradients, moments and activations; of the peer in `folder`, if one is given.

    Raises ArchlabError when the process is killed, which is what a machine without enough memory does.
    """
    deaf = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is answered by the process that waits
    with ProcessPoolExecutor(1, get_context("spawn"), signal.signal, deaf) as pool:
        try:
            return pool.submit(_measure, config, work, folder).result()
        except BrokenProcessPool:
            found = f"{work.sequences} sequences of {work.length} tokens"
            raise ArchlabError(
                f"bench: a process that trained on {found} was killed, most likely for want of memory; "
                "use fewer batch.sequences, or a smaller model"
            ) from None


def _measure(config: dict[str, Any], work: Workload, folder: Path | None) -> int:
    torch.set_num_threads(work.threads)
    spec = load(config)
    contender: Contender = Ours(spec, work.place) if folder is None else Peer(folder, work.place)
    training = TrainingStep(contender, spec, work)
    return _peak_cuda(training) if work.device == "cuda" else _peak_cpu(training)


def _peak_cuda(training: TrainingStep) -> int:
    torch.cuda.reset_peak_memory_stats()
    _train(training)
    return torch.cuda.max_memory_allocated()


def _peak_cpu(training: TrainingStep) -> int:
    """Bytes of the weights, and how far the process grew from there: imports don't count."""
    weights = sum(parameter.nbytes for parameter in training.parameters)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what loading has freed goes back, and is not grown into unseen
    before = resident_peak(forget=True)
    _train(training)
    return weights + resident_peak() - before


def _train(training: TrainingStep) -> None:
    for _ in range(2):  # the moments exist from the first step on, and meet activations in the second
        training.step()

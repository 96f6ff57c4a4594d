"""How much memory training takes: two steps in a process of their own, so that no measurement hides another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from builder.errors import ArchlabError
from builder.frozen import FrozenDict
from builder.load import load
from builder.memory import Forecaster
from builder.spec import RunSpec

from .contender import Contender, Ours
from .peer import Peer
from .settings import Workload
from .work import TrainingStep

WHAT = "what torch allocated"
"""What the number means."""


def expected(spec: RunSpec, work: Workload) -> int:
    """The forecast of the same peak: weights, gradients, moments, activations and logits."""
    here = {"accelerator": work.device.replace("cuda", "gpu"), "precision": work.precision, "strategy": "auto"}
    trainer = FrozenDict({**spec.trainer, **here, "devices": 1, "num_nodes": 1})
    return Forecaster(spec.model_copy(update={"trainer": trainer, "ema": None})).at(work.micro_batch).peak.total


def peak(config: dict[str, Any], work: Workload, folder: Path | None) -> int:
    """Peak bytes of training: weights, gradients, moments and activations; of the peer in `folder`, if one is given.

    Raises ArchlabError when the process is killed, which is what a machine without enough memory does.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else torch's profiler greets; read where torch is loaded
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
    if work.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        training.twice()
        return torch.cuda.max_memory_allocated()
    return held(contender.module) + allocated(training.twice)


def held(module: torch.nn.Module) -> int:
    """Bytes of its parameters and buffers."""
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def allocated(run: Callable[[], object]) -> int:
    """Bytes that torch allocated on the CPU during `run`, at the moment when they were most: less what it freed.

    The running total of the events that its profiler notes of every allocation.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    assert profiler.profiler is not None
    events: Any = profiler.profiler.kineto_results
    changes = sorted((event.start_ns(), event.nbytes()) for event in events.events() if event.name() == "[memory]")
    return max(accumulate(change for _, change in changes), default=0)

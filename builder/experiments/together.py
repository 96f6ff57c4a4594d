"""Several processes, one run: who starts them, what each is told, and how the run ends when one of them dies."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from builder.division import Division
from builder.errors import ArchlabError, ConfigError, Problem

T = TypeVar("T")
_MEETING = 600
"""Seconds in which all processes of a run that is started from outside must have come."""
_PERIOD = 0.2
"""Seconds between two looks at the processes."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class RankDied(ArchlabError):
    """A process of the run ended before the others; `asked` if it was by a signal that the run had been sent."""

    def __init__(self, message: str, asked: bool = False):
        super().__init__(message)
        self.asked = asked


def rank() -> int:
    """The number of this process among those of its run, 0 where it is alone."""
    return int(os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0")))


def outside() -> bool:
    """Whether torchrun or srun has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))) > 1 and (
        "TORCHELASTIC_RUN_ID" in os.environ or "SLURM_PROCID" in os.environ
    )


def processes(trainer: Mapping[str, Any]) -> int:
    """How many processes a trainer needs on this machine; raises ConfigError when other machines are needed too."""
    nodes = trainer.get("num_nodes", 1)
    if nodes > 1 and not outside():
        rule = "several machines are started by torchrun --nnodes or by srun, on each of them"
        raise ConfigError(
            [Problem("trainer.num_nodes", str(nodes), rule, "torchrun --nnodes=... -m recipes.train ...")]
        )
    return Division.of(trainer).devices


def agree(decide: Callable[[], T]) -> T:
    """What rank 0 decides, on every rank; where it raises, the others end without a word of their own."""
    import torch.distributed as dist

    _connect()
    told: list[Any] = [None]
    try:
        told = [(decide(),)] if dist.get_rank() == 0 else told
    finally:
        dist.broadcast_object_list(told, src=0)
    if told[0] is None:
        sys.exit(1)
    return told[0][0]


def start(arguments: Mapping[str, Any], count: int, module: str = "builder.experiments.rank") -> None:
    """Runs `count` processes of a module with these arguments, and waits for them.

    Signals are passed on to them. Raises RankDied, the others having been ended, as soon as one fails.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # what it says is said below
    command = ("-m", module, json.dumps(dict(arguments)))
    port = _free_port()
    context = start_processes(
        name="rank",
        entrypoint=sys.executable,
        args={number: command for number in range(count)},
        envs={number: _environment(number, count, port) for number in range(count)},
        logs_specs=DefaultLogsSpecs(),
    )
    with _passed_on(lambda: list(context.pids().values())) as sent:
        try:
            result = context.wait(-1, _PERIOD)
        finally:
            context.close(signal.SIGKILL)
    if result is not None and result.failures:
        first = min(result.failures.values(), key=lambda failure: failure.timestamp)
        how = f"was killed by {first.signal_name()}" if first.exitcode < 0 else f"ended with exit code {first.exitcode}"
        asked = first.exitcode < 0 and -first.exitcode in sent
        raise RankDied(f"rank {first.local_rank} of {count} {how}; the others were ended", asked)


def watch_the_parent() -> None:
    """Ends this process once the one that started it is gone: a run that goes on unseen would write to its folder."""
    parent, starter = os.getppid(), multiprocessing.parent_process()

    def watch() -> None:
        if starter is not None:  # not the server that it was forked from: a signal to all of a group ends that first
            starter.join()
        while starter is None and os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _environment(number: int, count: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    place = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, "GROUP_RANK": 0}
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "archlab"}
    threads = {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": max(1, (os.cpu_count() or 1) // count)}
    return {key: str(value) for key, value in (place | meeting | threads).items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _connect() -> None:
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0")))
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    found: Any = TorchElasticEnvironment() if TorchElasticEnvironment.detect() else SLURMEnvironment()
    os.environ |= {"MASTER_ADDR": found.main_address, "MASTER_PORT": str(found.main_port)}
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(
            backend, rank=found.global_rank(), world_size=found.world_size(), timeout=timedelta(seconds=_MEETING)
        )
    except dist.DistError as error:
        said = str(error).splitlines()[0]
        raise ArchlabError(
            f"{found.world_size()} processes were to meet, and did not in {_MEETING} s ({said}); start all of them, "
            "with srun or torchrun"
        ) from None


@contextmanager
def _passed_on(pids: Callable[[], list[int]]) -> Iterator[set[int]]:
    """Passes signals on to these processes; which ones there were."""
    sent: set[int] = set()

    def pass_on(number: int, frame: Any) -> None:
        sent.add(number)
        for pid in pids():
            os.kill(pid, number)

    before = {number: signal.signal(number, pass_on) for number in _SIGNALS}
    try:
        yield sent
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

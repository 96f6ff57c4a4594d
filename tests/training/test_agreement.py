"""Several ranks stop and save at the same step, whichever of them is asked; real processes over gloo."""

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist
from rich.console import Console

from builder.training.callbacks import checkpoint as callbacks
from builder.training.callbacks.interrupt import Interrupt, Interrupted, Preempted

RANKS = 2


def together(work: Callable[[int], str], folder: Path) -> list[str]:
    """What `work` says on each rank of a group."""
    children = [_child(work, rank, folder) for rank in range(RANKS)]
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    said = [(folder / f"rank-{rank}.txt").read_text() for rank in range(RANKS)]
    assert codes == [0] * RANKS, said
    return said


def _child(work: Callable[[int], str], rank: int, folder: Path) -> int:
    child = os.fork()
    if child:
        return child
    code, note = 1, folder / f"rank-{rank}.txt"
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
        note.write_text(work(rank))
        code = 0
    except BaseException:
        note.write_text(traceback.format_exc())
    finally:
        sys.stderr.flush()
        os._exit(code)


def trainer(rank: int) -> SimpleNamespace:
    return SimpleNamespace(world_size=RANKS, global_step=0, is_global_zero=rank == 0, callbacks=[])


@pytest.mark.parametrize(
    ("told", "kind", "name"),
    [
        ({1: signal.SIGTERM}, Interrupted, " by SIGTERM"),
        ({0: signal.SIGINT}, Interrupted, ""),
        ({0: signal.SIGTERM, 1: signal.SIGUSR1}, Preempted, " by SIGUSR1"),
    ],
)
def test_all_ranks_stop_after_the_same_step(tmp_path, monkeypatch, told, kind, name):
    def work(rank: int) -> str:
        saved, here = [], trainer(rank)
        callbacks.save_last = lambda trainer, count: saved.append(trainer.global_step)
        with Interrupt(Console(quiet=True)) as callback:
            callback.on_train_start(here, None)
            for here.global_step in range(8):
                try:
                    callback.on_train_batch_start(here, None, 0)
                except Interrupted as stop:
                    assert type(stop) is kind
                    return f"{stop}; saved {saved}"
                if here.global_step == 3 and rank in told:
                    os.kill(os.getpid(), told[rank])
        return "never asked"

    monkeypatch.setattr(callbacks, "save_last", callbacks.save_last)
    assert together(work, tmp_path) == [f"interrupted{name} after step 5; saved [5]"] * RANKS


def test_no_rank_stops_unasked(tmp_path):
    def work(rank: int) -> str:
        here, callback = trainer(rank), Interrupt(Console(quiet=True))
        for here.global_step in range(8):
            callback.on_train_batch_start(here, None, 0)
        return "never asked"

    assert together(work, tmp_path) == ["never asked"] * RANKS


def test_all_ranks_save_when_the_clock_of_one_says_so(tmp_path):
    def work(rank: int) -> str:
        saved, here = [], trainer(rank)
        seconds = iter([0.0] * 4 + [70.0 if rank else 0.0] * 100)
        callbacks.save_last = lambda trainer, count: saved.append(trainer.global_step)
        callbacks.time = SimpleNamespace(monotonic=lambda: next(seconds))
        last = callbacks.Last(every_n_minutes=1)
        last.on_train_start(here, None)
        for here.global_step in range(8):
            last.on_train_batch_start(here, None, 0)
        return str(saved)

    one, other = together(work, tmp_path)
    assert one == other == "[3]", "asked at the start of step 2, answered at that of step 3"

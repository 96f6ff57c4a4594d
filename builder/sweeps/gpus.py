"""The GPUs of this machine among the jobs of sweeps: each job sees as many as its trainer asks for, the freest ones.

As under Ray and SLURM, CUDA_VISIBLE_DEVICES says in the process of a job which those are. A job holds a lock for each,
which the system lets go of when the process ends, whatever ended it. No two jobs see the same GPU until there are more
of them than GPUs: then they share those with the fewest jobs. What a scheduler has granted is all that is handed out.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from .locks import held, locked

VARIABLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Request:
    """What the trainer of a job asks for.

    visible     the GPUs that may be used, as CUDA_VISIBLE_DEVICES names them, with the folder of each one's locks
    count       how many of them it takes, whichever
    named       those that it names by its own numbers instead; then all stay visible
    """

    visible: Mapping[str, Path]
    count: int
    named: tuple[str, ...] = ()

    @classmethod
    def of(cls, trainer: Mapping[str, Any]) -> Request | None:
        """The request of these arguments of Lightning's Trainer; None where there is no GPU to hand out, or on a CPU.

        It may set CUDA to work, so it isn't for the process of the job: there that comes after `taken`.
        """
        from builder.division import Division

        if trainer.get("accelerator") == "cpu" or not (found := visible()):
            return None
        home = Path(tempfile.gettempdir(), f"archlab-gpus-{os.getuid()}")
        there = {name: home / quote(which, safe="") for name, which in found.items()}
        asked = trainer.get("devices", "auto")
        if str(asked) in ("auto", "-1"):
            return cls(there, len(there))
        numbers = [part for part in asked.split(",") if part.strip()] if "," in str(asked) else asked
        if isinstance(numbers, list | tuple):
            return cls(there, 0, tuple(name for place, name in enumerate(there) if place in map(int, numbers)))
        return cls(there, Division.of(trainer).devices)


def visible() -> dict[str, str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them, and which of the machine's each one is.

    The same number may be another GPU in another job of a scheduler, and a UUID the same GPU as a number.
    """
    import torch

    count = torch.cuda.device_count()
    if count == 0:
        return {}
    machine = _machine()
    said = os.environ.get(VARIABLE)
    names = [str(number) for number in range(count)] if said is None else [name.strip() for name in said.split(",")]
    if not names[0].startswith("MIG"):  # of those CUDA counts the first alone
        names = names[:count]  # behind a name that it doesn't know, CUDA sees no more
    return {name: _which(name, machine) for name in names}


@contextmanager
def taken(request: Request | None) -> Iterator[None]:
    """Holds what a job asks for, and lets its process, where CUDA isn't at work yet, see nothing else."""
    if request is None:
        yield
        return
    places = request.visible
    with ExitStack() as kept:
        with held(next(iter(places.values())).parent, "choice", wait=math.inf):
            freest = sorted(places, key=lambda name: _jobs(places[name]))[: request.count]
            chosen = [name for name in places if name in freest or name in request.named]
            for name in chosen:
                kept.enter_context(_held(places[name]))
        os.environ[VARIABLE] = ",".join(chosen if request.count else places)
        print(f"{VARIABLE}={os.environ[VARIABLE]}", flush=True)
        yield


def _machine() -> dict[str, str]:
    """The UUIDs of the GPUs of this machine by their numbers, none where nvidia-smi doesn't say."""
    query = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
        lines = [line.partition(",") for line in said.splitlines()]
        return {number.strip(): uuid.strip() for number, _, uuid in lines}
    return {}


def _which(name: str, machine: Mapping[str, str]) -> str:
    """The UUID of a GPU by its number, or by the beginning of a UUID; else what it is called."""
    begins = [uuid for uuid in machine.values() if uuid.startswith(name)]
    return machine.get(name) or (begins[0] if len(begins) == 1 else name)


def _jobs(place: Path) -> int:
    """How many jobs hold a GPU; the files of those that have ended are removed."""
    place.mkdir(parents=True, exist_ok=True)
    count = 0
    for path in place.iterdir():
        with open(path) as file:
            if locked(file):
                path.unlink()
            else:
                count += 1
    return count


def _held(place: Path) -> IO[Any]:
    """One more job on a GPU, until this file is closed; who counts the jobs next removes it."""
    file = tempfile.NamedTemporaryFile(dir=place, delete=False)  # noqa: SIM115
    locked(file)
    return file

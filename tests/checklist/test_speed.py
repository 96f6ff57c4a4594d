"""How long the checklist takes: its static part, its probes, and the forecast of memory, over every config there is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from builder import check, compose, load
from builder.errors import ConfigError
from builder.memory import Endless, Forecaster
from builder.spec import RunSpec

FACTOR = float(os.environ.get("ARCHLAB_SLOWER", "1"))
"""How much slower than a usual machine this one may be."""

STATIC, PROBED, FORECAST = 0.05, 2.0, 2.0
"""Seconds of a CPU core."""

WORDS = [f"arch={path.stem}" for path in sorted(Path("recipes/arch").glob("*.yaml"))]
WORDS += [f"experiment={path.stem}" for path in sorted(Path("conf/experiment").glob("*.yaml"))]


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def spec_of(words: str) -> RunSpec:
    try:
        return load(compose([words]))
    except ConfigError:  # the path of one's own data
        return load(compose([words, "data.path=README.md"]))


def forecast_of(spec: RunSpec) -> None:
    """The memory of a step, without what would make it smaller."""
    forecaster = Forecaster(spec)
    with suppress(Endless):
        forecaster.at(forecaster.chosen)


def taken(work: Callable[[], object], times: int) -> float:
    """The median of the seconds that a core works, whatever else it does between."""

    def once() -> float:
        begun = time.process_time()
        work()
        return time.process_time() - begun

    return sorted(once() for _ in range(times))[times // 2]


@pytest.mark.slow
def test_every_config_is_checked_in_no_time():
    late, rows = [], []
    check(load(compose()))  # imports
    for words in WORDS:
        spec = spec_of(words)
        seconds = (
            taken(lambda: check(spec, probes=False, trains=False), 3),  # noqa: B023
            taken(lambda: check(spec, trains=False), 1),  # noqa: B023
            taken(lambda: forecast_of(spec), 1),  # noqa: B023
        )
        rows.append((words, *seconds))
        late += [words for is_, may in zip(seconds, (STATIC, PROBED, FORECAST), strict=True) if is_ > may * FACTOR]
    print(f"\n{'':<32}{'static':>10}{'probes':>10}{'forecast':>10}")
    for words, *seconds in sorted(rows, key=lambda row: -sum(row[1:])):
        print(f"{words:<32}" + "".join(f"{number:>10.3f}" for number in seconds))
    assert not late

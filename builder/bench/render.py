"""The measurements for a terminal: one table, a line each, and below it what was measured where."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from .memory import WHAT
from .ratio import Ratio
from .settings import Workload
from .suite import Result, Timing

_STYLE = {"faster": "green", "level": "", "slower": "yellow"}


def render(result: Result, work: Workload, machine: dict[str, Any], title: str) -> RenderableType:
    """A rich renderable of everything that was measured."""
    table = Table(title=title, title_style="bold", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("batch", justify="right")
    for name in result.parameters:
        table.add_column(name, justify="right")
    table.add_column("tokens/s", justify="right")
    if result.peer:
        table.add_column("ours/theirs")
        table.add_column("")
    for timing in result.timings:
        table.add_row(timing.what, str(timing.rows), *_cells(timing))
    table.add_row("memory", str(work.sequences), *_memory(list(result.memory.values())))
    table.add_row("forecast", str(work.sequences), _bytes(result.forecast))
    return Group(table, Text(_below(result, work, machine), style="dim"))


def _cells(timing: Timing) -> list[str | Text]:
    """The cells of a line after its batch: times, our tokens a second, and the ratio when there is one."""
    middles = [median(seconds) for seconds in timing.samples.seconds.values()]
    times = [_time(middle) for middle in middles]
    return [*times, f"{timing.tokens / middles[0]:,.0f}", *(_ratio(timing.ratio) if timing.ratio else ())]


def _ratio(ratio: Ratio) -> tuple[str, Text]:
    spread = f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})"
    return spread, Text(ratio.verdict, style=_STYLE[ratio.verdict])


def _memory(peaks: Sequence[int]) -> list[str]:
    cells = [_bytes(peak) for peak in peaks]
    return [*cells, "", f"{peaks[0] / peaks[1]:.2f}"] if len(peaks) == 2 else cells


def _below(result: Result, work: Workload, machine: dict[str, Any]) -> str:
    """The lines under the table."""
    (parameters, *_), threads = result.parameters.values(), work.threads
    lines = [
        f"{parameters:,} parameters, {work.dtype}\n{machine['device_name']}, torch {machine['torch']}, "
        f"{threads} thread{'s' if threads > 1 else ''}",
        f"training: a step on {work.length} tokens a row; memory: peak of {WHAT}",
        "forecast: of that peak, before anything was computed",
        f"prefill: {work.prompt_length} tokens a row; generate: {work.new_tokens} more, as one call",
        "decode: a token a row after the first, in that call; tokens/s: of new ones",
        f"times: medians of {work.rounds} rounds; tokens/s: of archlab",
    ]
    for timing in result.timings:
        if timing.parts:
            shares = ", ".join(f"{part} {share:.0%}" for part, share in timing.parts.items())
            lines.append(f"a step of {timing.what}: {shares} (loss with forward, clipping with update)")
    if result.mfu is not None:
        lines.append(f"MFU of training: {result.mfu:.1%} of what the device's maker states")
    if result.peer:
        lines.append(f"transformers: {result.peer}, the same weights, measured in turns")
        lines.append("ours/theirs: median ratio in a round, 95% interval; level where that holds 1")
        if not all(timing.ratio and timing.ratio.sure for timing in result.timings):
            lines.append("fewer than 6 rounds can't tell two apart, so all is level; bench.rounds=6 or more")
    return "\n".join(lines)


def _time(seconds: float) -> str:
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"


def _bytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"

"""How much memory this process has held at most, as the system counts it."""

from __future__ import annotations

import contextlib
from pathlib import Path

_STATUS, _REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident_peak(forget: bool = False) -> int:
    """The largest resident size of this process, in bytes; since now, with `forget`."""
    if not _STATUS.exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS, where there is no /proc
    with contextlib.suppress(OSError):
        if forget:
            _REFS.write_text("5")
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

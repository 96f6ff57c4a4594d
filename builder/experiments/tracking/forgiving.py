"""What a fault of W&B does to a run: it is warned of once, and the run goes on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


class Forgiving:
    """A context whose faults are not the run's: the first one is warned of, and the run goes on."""

    def __init__(self, folder: Path | None = None) -> None:
        self._where = f", and {folder / 'metrics.jsonl'} has every metric" if folder is not None else ""
        self.faulty = False
        """Whether there was a fault."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if not isinstance(error, Exception):  # nothing, or a signal that means the run itself
            return False
        if not self.faulty:
            warn(f"W&B fails ({type(error).__name__}: {error}); the run goes on{self._where}")
        self.faulty = True
        return True


def warn(text: str) -> None:
    """Says to stderr what went wrong beside the run."""
    print(f"warning: {text}", file=sys.stderr)

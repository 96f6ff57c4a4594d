"""What sweeps have left behind."""

import json
from pathlib import Path


def sweeps(tmp_path: Path) -> list[Path]:
    """The folders of the sweeps of a test, in the order in which they were begun."""
    return sorted(path.parent for path in tmp_path.glob("out/main/*/plan.json"))


def statuses(folder: Path) -> list[str]:
    """What became of each point of a sweep."""
    return [row["status"] for row in json.loads((folder / "jobs.json").read_text())]

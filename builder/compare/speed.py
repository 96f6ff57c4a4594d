"""Decode speed where it is known: what `recipes.bench` measured of the same architectures, all on one machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .comparison import Row


@dataclass(frozen=True)
class Speeds:
    """Tokens a second of a decode step at one batch, by architecture; `where` is the machine and the arithmetic."""

    where: str
    batch: int
    by_model: Mapping[str, float]

    @property
    def axis(self) -> str:
        """What a picture calls it."""
        return f"decode, tokens/s at batch {self.batch} ({self.where})"

    def of(self, row: Row) -> float | None:
        """The speed of a row's architecture."""
        models = (run.config["model"] for run in row.configuration.runs if "model" in run.config)
        return self.by_model.get(_key(next(models, None)))


def find(rows: Iterable[Row]) -> Speeds | None:
    """The speeds in the `bench` folders beside the runs: of the machine and batch that know the most of the
    architectures; None where fewer than two are known."""
    runs = [run for row in rows for run in row.configuration.runs]
    wanted = {_key(run.config.get("model")) for run in runs if run.config}
    places = {parent / "bench" for run in runs for parent in list(Path(run.where).parents)[:4]}
    found: dict[tuple[str, int], dict[str, float]] = {}
    for file in sorted(file for place in places if place.is_dir() for file in place.glob("*.json")):
        for where, model, batch, speed in _measured(file):
            if model in wanted:
                found.setdefault((where, batch), {})[model] = speed  # the last of several, by the name of its file
    counts = Counter({key: len(models) for key, models in found.items()})
    if not counts or (most := max(counts.values())) < 2:
        return None
    where, batch = min((key for key, count in counts.items() if count == most), key=lambda key: (key[1], key[0]))
    return Speeds(where, batch, found[where, batch])


def _measured(file: Path) -> Iterator[tuple[str, str, int, float]]:
    """(machine and arithmetic, model, batch, tokens a second) of each decode measurement in a file of the bench."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        machine, work = content["machine"], content["workload"]
        threads = f"{work['threads']} thread{'s' if work['threads'] > 1 else ''}"
        where = f"{machine['device_name']}, {threads}, {work['dtype']}"
        model = _key(content["config"]["model"])
        for timing in content["timings"]:
            if timing["what"] == "decode":
                yield where, model, timing["batch"], timing["tokens_per_second"]["archlab"]
    except (OSError, ValueError, KeyError, TypeError):  # no file of the bench
        return


def _key(model: Any) -> str:
    return json.dumps(model, sort_keys=True)

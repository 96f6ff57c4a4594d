"""How fast a model trains and writes, alone or in turns with the same model in transformers."""

from __future__ import annotations

from .settings import BenchSpec, Workload, read_sections, workload
from .suite import Result, Timing, count, measure

__all__ = ["BenchSpec", "Result", "Timing", "Workload", "count", "measure", "read_sections", "workload"]

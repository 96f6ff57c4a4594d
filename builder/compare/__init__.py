"""Runs beside each other: read, grouped by configuration, measured over seeds, ranked where that is fair, and shown.

A run comes from a folder (reading) or from W&B (wandb_runs) as a `Run`: its state, its config, what it cost, and what
it logged. Runs whose configs differ in their seed alone, on the same data, are one `Configuration` (groups); what sets
it apart is put in words (apart). `compare` says which number each run gives (values), what seeds make of it
(statistics), and what is alike in all of them (matched); tables, which fit the terminal (fitting), files, figures and
the page show one `Comparison` and decide nothing.
"""

from .comparison import Comparison, Row, compare
from .run import Run
from .settings import CompareSpec

__all__ = ["CompareSpec", "Comparison", "Row", "Run", "compare"]

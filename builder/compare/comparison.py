"""A comparison: one row a configuration, its number over seeds, its rank where ranking is fair, and why it isn't."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from builder.errors import ArchlabError, nearest

from .apart import Columns, shortened
from .groups import Configuration, group
from .matched import NUMBERS, Match, Side, alike, matches
from .run import Run
from .settings import CompareSpec
from .statistics import Mean, Pair, mean, pairs
from .values import Value, best, is_higher_better, last, metrics, value


@dataclass(frozen=True)
class Row:
    """One configuration.

    used        the runs whose values count, one a seed
    values      what each of them gives, with its step; a run that has no number is left out
    mean        over those; None where no run has the metric
    whole       whether a run of it was completed, and each seed that was has a number
    rank        from 1; None where it has no number, or nothing is ranked
    marks       what must be known of its runs before its number is used
    """

    configuration: Configuration
    used: tuple[Run, ...]
    values: tuple[tuple[Run, Value], ...]
    mean: Mean | None
    whole: bool
    marks: tuple[str, ...]
    rank: int | None = None

    @property
    def side(self) -> Side:
        """The configuration with the runs whose values count."""
        return self.configuration, [run for run, _ in self.values]

    @property
    def shows(self) -> bool:
        """Whether a picture has anything to show of it."""
        return any(run.series for run in self.used)

    def of(self, metric: str, higher: bool) -> list[tuple[Run, Value | None, Value | None]]:
        """(run, its best, its last) of a metric, for each used run."""
        found = [(run, run.series.get(metric, [])) for run in self.used]
        return [(run, best(points, higher), last(points)) for run, points in found]

    def cost(self, name: str) -> int | None:
        """A cost of the architecture, in the ledger's words."""
        return next((run.costs[name] for run in self.configuration.runs if name in run.costs), None)

    def reached(self, axis: str) -> int | None:
        """The most tokens or FLOPs that a used run was trained for."""
        ends = [getattr(run.end, axis) for run in self.used if run.end is not None]
        return max((end for end in ends if end is not None), default=None)


@dataclass(frozen=True)
class Comparison:
    """Everything that is shown.

    rows        by rank, else as they were read, those without a number last
    keys        the config keys in which the configurations differ, by their short names
    refusal     why nothing is ranked; empty where it is
    advice      what to write then
    overruled   why nothing would have been ranked without force; empty where it would
    pairs       tests of every two rows that may be compared, by their places in `rows`
    """

    metric: str
    by: str
    higher: bool
    rows: tuple[Row, ...]
    keys: Mapping[str, str]
    metrics: tuple[str, ...]
    matches: tuple[Match, ...]
    refusal: str
    advice: str
    overruled: str
    forced: bool
    pairs: tuple[Pair, ...]

    @property
    def ranked(self) -> bool:
        """Whether the rows stand in the order of their ranks."""
        return not self.refusal

    @property
    def columns(self) -> Columns:
        """The keys as columns, a slot that holds different components as one."""
        items = [row.configuration for row in self.rows]
        known = [item for item in items if item.known]
        return Columns.of(self.keys, [item.differing for item in known or items])

    @property
    def runs(self) -> list[Run]:
        """All runs, by row."""
        return [run for row in self.rows for run in row.configuration.runs]


def compare(runs: Sequence[Run], spec: CompareSpec) -> Comparison:
    """The comparison of runs; raises ArchlabError for a metric that none of them logged."""
    logged = metrics(runs)
    if spec.rank not in logged and any(run.series for run in runs):
        close = nearest(spec.rank, logged)
        hint = f"rank={close}" if close else f"one of {', '.join(logged)}"
        raise ArchlabError(f"rank: found {spec.rank!r}, which no run logged; write {hint}")
    higher = is_higher_better(spec.rank, spec.goal)
    rows = [_row(configuration, spec, higher) for configuration in group(runs)]
    able = [row for row in rows if row.mean is not None and (row.whole or spec.force)]
    found = matches([row.side for row in able])
    asked = [match for match in found if match.aspect in spec.match]
    against, advice = _refusal(rows, [row for row in able if row.whole], asked)
    if spec.force or not against:
        rows = _by_rank(rows, able, higher)
    keys = list(dict.fromkeys(path for row in rows for path in row.configuration.differing))
    return Comparison(
        metric=spec.rank, by=spec.by, higher=higher, rows=tuple(rows), keys=shortened(keys),
        metrics=tuple(logged), matches=tuple(found), refusal="" if spec.force else against,
        advice="" if spec.force else advice, overruled=against if spec.force else "", forced=spec.force,
        pairs=tuple(_tested(rows, asked, spec.force)),
    )  # fmt: skip


def _row(configuration: Configuration, spec: CompareSpec, higher: bool) -> Row:
    counted = configuration.counted
    used = counted or configuration.begun
    values = tuple((run, found) for run in used if (found := value(run, spec.rank, spec.by, higher)) is not None)
    marks = [f"{run.name}: {run.mark}" for run in configuration.runs if run.mark]
    marks += [f"{run.name}: seed {run.seed} again, not counted" for run in configuration.repeats]
    numbered = {run.where for run, _ in values}
    for run in used:
        end = last(run.series.get(spec.rank, []))
        if end is not None and end.value != end.value:
            marks.append(f"{run.name}: {spec.rank} is no number at step {end.step}")
        elif run.where not in numbered:
            marks.append(f"{run.name}: no {spec.rank}")
    middle = mean([found.value for _, found in values])
    whole = bool(counted) and len(values) == len(counted)
    return Row(configuration, used, values, middle, whole, (*configuration.notes, *marks))


def _refusal(rows: Sequence[Row], able: Sequence[Row], asked: Sequence[Match]) -> tuple[str, str]:
    """(why nothing is ranked, what helps); empty where it is ranked."""
    if len(rows) == 1:
        return "one configuration, beside no other", "train another, or name more folders: runs=DIR,DIR"
    if len(able) < 2:
        why = f"{len(able)} of {len(rows)} configurations have completed runs that all have a number"
        return why, "let more of them be completed, or write force=true to rank those that have a number"
    unlike = [match for match in asked if match.alike is not True]
    if not unlike:
        return "", ""
    ways = ["where=[path=value] for what is alike"]
    ways += ["budget=... to train at equal cost"] if any(match.aspect in NUMBERS for match in unlike) else []
    if left := [match.aspect for match in asked if match.alike]:
        ways.append(f"match=[{','.join(left)}] for what must be alike")
    return f"not matched: {'; '.join(match.what for match in unlike)}", f"write {', or '.join(ways)}, or force=true"


def _by_rank(rows: Sequence[Row], able: Sequence[Row], higher: bool) -> list[Row]:
    order = sorted(able, key=lambda row: (-1 if higher else 1) * row.mean.mean)  # type: ignore[union-attr]
    ranked = [replace(row, rank=place) for place, row in enumerate(order, 1)]
    return [*ranked, *(row for row in rows if not any(row is other for other in able))]


def _tested(rows: Sequence[Row], asked: Sequence[Match], force: bool) -> list[Pair]:
    """The tests of the pairs that are alike in all that is asked."""
    samples = [[found.value for _, found in row.values] for row in rows]
    allowed = [row.whole or force for row in rows]
    unlike = [] if force else [match for match in asked if match.alike is not True]

    def fair(one: int, other: int) -> bool:
        return all(alike(match, rows[one].side, rows[other].side) for match in unlike)

    return pairs(samples, allowed, fair if unlike else None)

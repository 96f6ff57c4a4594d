"""Which knobs of a generation go together, and which one nothing reads for want of another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import Problem
from .found import told

_OFF: Mapping[str, tuple[Any, ...]] = {
    **{"temperature": (0,), "top_k": (None,), "top_p": (None, 1), "min_p": (None, 0), "repetition_penalty": (None, 1)},
    **{"length_penalty": (1,), "early_stopping": (False,), "draft": (None,), "draft_tokens": (None,)},
    **{"compile": (False,)},
}
"""What each knob is where it does nothing, the first as it is written."""

_FILTERS = ("top_k", "top_p", "min_p")


def unfit(knobs: Mapping[str, Any]) -> list[Problem]:
    """The problems of knobs that are set and have no effect beside the others, or can't stand there.

    Judged are those that are given, each within its own range; those left out do nothing.
    """
    rules = ((knob, rule, fix) for knob, rule, fix in _rules(knobs) if knob in knobs and _acts(knob, knobs[knob]))
    return [Problem(knob, told(knobs[knob]), rule, f"{_written(knob)}, or {fix}") for knob, rule, fix in rules]


def _rules(knobs: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(knob, why it does nothing beside the others, with what it would)."""
    searched, drafted = knobs.get("num_beams", 1) > 1, knobs.get("draft") is not None
    if searched:
        rule = "beam search draws nothing: it follows the model's own probabilities"
        yield from ((knob, rule, "num_beams=1") for knob in ("temperature", *_FILTERS, "repetition_penalty", "draft"))
    else:
        rule = "nothing reads it without beams"
        yield from ((knob, rule, "temperature=0 num_beams=4") for knob in ("length_penalty", "early_stopping"))
        rule = "nothing reads it at temperature 0, where the likeliest token is taken"
        yield from ((knob, rule, "temperature=0.8") for knob in _FILTERS if knobs.get("temperature") == 0)
    if not drafted:
        yield "draft_tokens", "nothing reads it while draft is null", "draft=..., a smaller one that proposes them"
    else:
        rule = "what is compiled reads a token a step, and behind a draft the model reads several"
        yield "compile", rule, "draft=null"


def _acts(knob: str, value: Any) -> bool:
    return not any(value is off or (off is not None and value == off) for off in _OFF[knob])


def _written(knob: str) -> str:
    off = _OFF[knob][0]
    return f"{knob}={'null' if off is None else 'false' if off is False else off}"

"""Which text is trained on and which is held out; no document stands on both sides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from ..errors import ConfigError, Problem
from .digest import digest

Split = Literal["tail", "documents"]


def split(documents: Sequence[str], fraction: float, how: Split) -> tuple[list[str], list[str]]:
    """The training and the validation documents, both in the order of the source.

    A validation document that also stands in training is dropped. Raises ConfigError when a side is left empty.
    """
    train, val = _WAYS[how]([text for text in documents if text], fraction)
    known = set(train)
    kept = [text for text in val if text not in known]
    if train and kept:
        return train, kept
    side = "validation" if train else "training"
    why = f", because all of its {len(val)} documents also stand in the training text" if train and val else ""
    raise ConfigError(
        [
            Problem(
                "data.val_fraction",
                f"{fraction} with split: {how} over {len(documents)} documents, which leaves no {side} text{why}",
                "both splits hold text, and no document stands in both",
                f"{_OTHER[how]}, another data.val_fraction, or a source with more text",
            )
        ]
    )


def _tail(documents: Sequence[str], fraction: float) -> tuple[list[str], list[str]]:
    total = sum(map(len, documents))
    cut = total - round(total * fraction)
    train: list[str] = []
    val: list[str] = []
    for text in documents:  # `cut`: the characters that training may still take
        train.append(text[: max(cut, 0)])
        val.append(text[max(cut, 0) :])
        cut -= len(text)
    return [text for text in train if text], [text for text in val if text]


def _documents(documents: Sequence[str], fraction: float) -> tuple[list[str], list[str]]:
    # The order of the hashes looks random, yet a document added to the source moves no other across for that reason.
    target = fraction * sum(map(len, documents))
    held: set[int] = set()
    count = 0
    for index in sorted(range(len(documents)), key=lambda index: (digest([documents[index]]), index)):
        if count >= target:
            break
        held.add(index)
        count += len(documents[index])
    train = [text for index, text in enumerate(documents) if index not in held]
    return train, [text for index, text in enumerate(documents) if index in held]


_WAYS: dict[str, Callable[[Sequence[str], float], tuple[list[str], list[str]]]] = {
    "tail": _tail,
    "documents": _documents,
}
_OTHER = {"tail": "data.split=documents", "documents": "data.split=tail"}

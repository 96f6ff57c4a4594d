"""The name of a list of texts by its content."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def digest(texts: Iterable[str]) -> str:
    """SHA-256 in hex; each text is framed by its length, so that moving a boundary changes the result."""
    state = hashlib.sha256()
    for text in texts:
        data = text.encode()
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()

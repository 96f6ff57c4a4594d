"""Text out of ids that arrive one at a time, with no character shown before it is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what decoding puts in place of bytes that are no character, or not yet one


class StreamDecoder:
    """Decodes a growing window of ids: all that is pushed and flushed, joined, is `decode` of all the ids.

    The window keeps the ids of the last text shown, because many decoders treat the first piece of a text differently
    (they strip its space); it ends where a character ends, so that its own text never changes again.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self._decode = decode
        self._shown: list[int] = []
        self._held: list[int] = []

    def push(self, id: int) -> str:
        """The text that became certain with this id; "" while its last character is incomplete."""
        self._held.append(int(id))
        text = self._decode(self._shown + self._held)
        return "" if text.endswith(BROKEN) else self._show(text)

    def flush(self) -> str:
        """What is still held back: bytes that never became a character come out as U+FFFD."""
        return self._show(self._decode(self._shown + self._held)) if self._held else ""

    def _show(self, text: str) -> str:
        before = self._decode(self._shown)
        # A decoder with byte fallback may revoke a run of bytes that was already shown; then the new ids speak alone.
        new = text[len(before) :] if text.startswith(before) else self._decode(self._held)
        if new:
            self._shown, self._held = self._held, []
        return new

"""Whether a tokenizer gives text back as it got it: tried on texts that are hard to keep, and on its own tokens."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from builder.data.tokenizer import Tokenizer
from builder.finding import Finding, Status

HARD = (
    *("", " ", "\n", "The quick brown fox jumps.", "ALL CAPS, Title Case", "0123456789 3.14 1e-9", "don't ; a_b(c)[0]"),
    *(
        "café naïve Ærø Übermut",
        "e\u0301o\u0308u\u0304",
        "Ελληνικά Кириллица",
        "עברית العربية",
        "漢字かな 한국어",
        "ไทย हिन्दी",
    ),
    *(
        "🙂 👩\u200d💻 🇨🇳",
        "a\tb\t\tc",
        "one\n\ntwo\r\nthree",
        "two  spaces   three",
        " before",
        "behind ",
        "no\u00a0break\u2003em",
    ),
    *("\x00\x01\x7f", "“quotes” — dash…", "ﬁ ½ ² 𝔘", "𒀀 𐎀", "<div>&amp;</div>", "\ufeffmark"),
)
"""Texts in which tokenizers have lost something."""

_STRANGE = "𒀀", "𐎀"
"""Two letters of scripts that no vocabulary holds: what both become is what is unknown."""
_MOST = 64  # special tokens that are tried as text
_CHARACTERS = 8000  # of the training data that are tried


def _unaccented(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFD", text) if unicodedata.category(letter) != "Mn")


def _uncontrolled(text: str) -> str:
    return "".join(letter for letter in text if letter.isspace() or unicodedata.category(letter)[0] != "C")


_LOST: dict[str, Callable[[str], str]] = {
    "accents": _unaccented,
    "case": str.lower,
    "control characters": _uncontrolled,
    "the forms of letters": lambda text: unicodedata.normalize("NFKC", text),
    "white space": lambda text: "".join(text.split()),
}
"""What may be lost of a text, each with what takes it away; the narrower ones behind, since they explain less."""


@dataclass(frozen=True)
class Tried:
    """A text, its ids, and what these give; both None where the tokenizer raised `error`."""

    text: str
    ids: tuple[int, ...] | None
    back: str | None
    error: str = ""

    @classmethod
    def on(cls, tokenizer: Tokenizer, text: str) -> Tried:
        """A text as this tokenizer spells it."""
        """What the tokenizer makes of a text, whatever it raises."""
        try:
            ids = tuple(map(int, tokenizer.encode(text)))
            return cls(text, ids, tokenizer.decode(ids))
        except Exception as error:  # a tokenizer of another house may raise anything
            return cls(text, None, None, f"{type(error).__name__}: {str(error).partition('; ')[0]}")


def unknown_of(tokenizer: Tokenizer) -> int | None:
    """The id of all that the tokenizer has no other for; None where there is no such id."""
    first, second = (Tried.on(tokenizer, letter).ids for letter in _STRANGE)
    return first[-1] if first and first == second else None


def check(tokenizer: Tokenizer) -> Iterator[Finding]:
    """What comes back of hard texts, of special tokens written out, and of characters that it may not know."""
    own = tokenizer.trials()
    kinds = "scripts, marks, white space and rare characters" if own is None else "the only texts that it takes"
    yield _returned([Tried.on(tokenizer, text) for text in (HARD if own is None else own)], kinds)
    yield _written_out(tokenizer)
    if own is None:
        yield _sayable(tokenizer)


def of_data(tokenizer: Tokenizer, texts: Sequence[str]) -> Finding:
    """What comes back of the first training texts, as far as they were kept."""
    if not texts:
        rule = "whether its texts come back can't be told of data that holds tokens alone"
        return Finding(Status.UNKNOWN, 6, "data", "no texts", rule)
    each = max(1, _CHARACTERS // len(texts))
    kinds = "the beginnings of the first training texts"
    return _returned([Tried.on(tokenizer, text[:each]) for text in texts], kinds, "data")


def _returned(tried: Sequence[Tried], kinds: str, path: str = "tokenizer") -> Finding:
    changed = [one for one in tried if one.back != one.text]
    found = f"{len(tried) - len(changed)} of {len(tried)} texts come back as they went in"
    rule = f"decode(encode(text)) is text, over {kinds}"
    if not changed:
        return Finding(Status.PASS, 6, path, found, rule)
    if all(one.ids == () for one in tried if one.text.strip()):
        rule = "no text becomes any token: there is nothing to read"
        return Finding(Status.FAIL, 6, path, _example(found, changed[-1]), rule, "tokenizer=bytes")
    lost = dict.fromkeys(name for one in changed for name in _lost(one))
    rule = f"what is lost: {', '.join(lost)}; a model can neither read it nor write it"
    telling = next((one for one in changed if one.text.strip()), changed[0])
    fix = "tokenizer=bytes, which keeps all, or this one, if what is lost may be"
    return Finding(Status.WARN, 6, path, _example(found, telling), rule, fix)


def _example(found: str, one: Tried) -> str:
    became = one.error if one.back is None else f"comes back as {one.back!r}"
    return f"{found}; {one.text!r} {'raises' * (one.back is None)} {became}".replace("  ", " ")


def _lost(one: Tried) -> list[str]:
    """What must be taken away of a text and of what came back before they are alike."""
    if one.back is None:
        return ["texts that it refuses"]

    def alike(names: Sequence[str]) -> bool:
        texts = [one.text, one.back or ""]
        for name in names:
            texts = [_LOST[name](text) for text in texts]
        return texts[0] == texts[1]

    needed = list(_LOST)
    if not alike(needed):
        return ["characters"]
    for name in _LOST:
        fewer = [other for other in needed if other != name]
        needed = fewer if alike(fewer) else needed
    return needed


def _written_out(tokenizer: Tokenizer) -> Finding:
    """Whether the text of a special token stays text: else what is read could end itself."""
    names = [token for token in tokenizer.specials if token][:_MOST]
    unknown, own = unknown_of(tokenizer), set(tokenizer.specials.values())
    read = {name: Tried.on(tokenizer, f"a {name} b").ids or () for name in names}
    wrong = [name for name, ids in read.items() if own.intersection(ids) - {unknown}]
    if not wrong:
        rule = "the text of a special token is text: only the run itself puts one there"
        return Finding(Status.PASS, 6, "tokenizer", f"{', '.join(names)} written in a text", rule)
    rule = "a text that holds it can end, pad or begin itself"
    fix = "tokenizer=bytes, or texts in which it doesn't stand"
    return Finding(
        Status.WARN, 6, "tokenizer", f"{wrong[0]} written in a text is id {tokenizer.specials[wrong[0]]}", rule, fix
    )


def _sayable(tokenizer: Tokenizer) -> Finding:
    """Whether there is an id for any character, as where bytes stand behind all others."""
    unknown = unknown_of(tokenizer)
    letters = {letter for text in HARD for letter in text if not letter.isspace()}
    read = {letter: Tried.on(tokenizer, letter).ids for letter in sorted(letters, key=lambda x: (not x.isalpha(), x))}
    missing = [letter for letter, ids in read.items() if not ids or unknown in ids]
    found = f"{len(letters) - len(missing)} of {len(letters)} characters can be said"
    if not missing:
        return Finding(Status.PASS, 6, "tokenizer", found, "any text has ids: what no token holds is spelt in bytes")
    gone = sum(not read[letter] for letter in missing)
    counts = {f"become the unknown id {unknown}": len(missing) - gone, "vanish or are refused": gone}
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    rule = f"{told}, such as {' '.join(map(repr, missing[:4]))}"
    fix = "tokenizer=bytes or bpe, which know every byte, or texts without them"
    return Finding(Status.WARN, 6, "tokenizer", found, rule, fix)

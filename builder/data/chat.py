"""A conversation as a chat template writes it, and which parts of that are answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

Messages = Sequence[Mapping[str, str]]

DEFAULT = """\
{%- for message in messages -%}
{{ '' if loop.first else '\n' }}<|{{ message['role'] }}|>
{{ message['content'] + eos_token }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '\n' if messages else '' }}<|assistant|>
{% endif -%}
"""
"""Each message behind a line that says whose it is, and an end behind it."""

# Characters that no text holds: Unicode keeps them for uses such as this.
_BEGINS, _ENDS, _ANSWER, _MASKED = "\ufdd0", "\ufdd1", "\ufdd2", 0xF0000
_MARKS = re.compile(f"([{_BEGINS}{_ENDS}])")


class BadTemplate(ValueError):
    """A template that is none, or that can't write a conversation."""


@dataclass(frozen=True)
class Piece:
    """A part of a conversation: text, or the special token `token`; `counted` where it is of an answer."""

    text: str
    token: str | None
    counted: bool


class _Generation(Extension):
    """`{% generation %}` .. `{% endgeneration %}`, which stand around answers in some templates."""

    tags = {"generation"}

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_marked"), [], [], body).set_lineno(line)

    def _marked(self, caller: Any) -> str:
        return f"{_BEGINS}{caller()}{_ENDS}"


@dataclass(frozen=True)
class Chat:
    """A Jinja chat template as Hugging Face's are, run in a sandbox.

    names    what it may write besides the messages, such as `eos_token`
    specials the special tokens: where the template writes one it is that token, in a message it is text

    An answer is what stands in `{% generation %}`, or else what a message of the assistant adds to the prompt of its
    generation, up to the last special token in it. Raises BadTemplate.
    """

    template: str
    names: Mapping[str, str]
    specials: Sequence[str]

    def pieces(self, messages: Messages) -> Iterator[Piece]:
        """The conversation, from its beginning to its end."""
        return self._cut(self._marked([self._safe(message) for message in messages]))

    def question(self, messages: Messages) -> tuple[list[Piece], str | None]:
        """What stands before an answer to these messages, and the special token in which the answer ends.

        The first is what `pieces` has before that answer, whatever it is: most often what add_generation_prompt writes.
        The second is None where no special token stands behind an answer.
        """
        answered = [*map(self._safe, messages), {"role": "assistant", "content": _ANSWER}]
        before, _, answer = self._marked(answered).rpartition(_BEGINS)
        if _ANSWER not in answer:
            raise BadTemplate("it shows no answer to these messages")
        end = self._splits.search(answer.partition(_ENDS)[0].rpartition(_ANSWER)[2])
        return [*self._cut(before)], end and end[0]

    def _cut(self, marked: str) -> Iterator[Piece]:
        """What is written, in pieces, without the marks around answers."""
        counted = False
        for part in _MARKS.split(marked):
            if part in (_BEGINS, _ENDS):
                counted = part == _BEGINS
                continue
            for number, text in enumerate(self._splits.split(part) if part else ()):
                if text:
                    yield Piece("" if number % 2 else self._said(text), text if number % 2 else None, counted)

    def _marked(self, messages: list[dict[str, str]]) -> str:
        """The conversation with marks around its answers."""
        whole = self._written(messages)
        if _BEGINS in whole:
            return whole
        made, end = "", 0
        for number, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            before = self._written(messages[:number], add_generation_prompt=True)
            after = self._written(messages[: number + 1])
            if not (whole.startswith(after) and after.startswith(before) and len(before) >= end):
                raise BadTemplate(
                    "an answer isn't written behind the prompt for it; put {% generation %} around answers"
                )
            answer = after[len(before) :]
            if found := [*self._splits.finditer(answer)]:
                answer = answer[: found[-1].end()]
            made += f"{whole[end : len(before)]}{_BEGINS}{answer}{_ENDS}"
            end = len(before) + len(answer)
        return made + whole[end:]

    def _written(self, messages: list[dict[str, str]], add_generation_prompt: bool = False) -> str:
        try:
            return _compiled(self.template).render(
                messages=messages, add_generation_prompt=add_generation_prompt, tools=None, documents=None, **self.names
            )
        except Exception as error:  # whatever the template does wrong
            raise BadTemplate(f"{type(error).__name__}: {error}") from None

    @cached_property
    def _splits(self) -> re.Pattern[str]:
        longest_first = sorted(self.specials, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")

    def _safe(self, message: Mapping[str, str]) -> dict[str, str]:
        """The message with one character for each special token that stands in it as text."""
        numbers = {token: number for number, token in enumerate(self.specials)}
        content = _MARKS.sub("", message["content"])
        content = self._splits.sub(lambda found: chr(_MASKED + numbers[found[0]]), content)
        return {"role": message["role"], "content": content}

    def _said(self, text: str) -> str:
        """The text with the tokens again that `_safe` took from it."""
        last = chr(_MASKED + max(len(self.specials) - 1, 0))
        return re.sub(f"[{chr(_MASKED)}-{last}]", lambda found: self.specials[ord(found[0]) - _MASKED], text)


@lru_cache(maxsize=4)
def _compiled(template: str) -> jinja2.Template:
    """Kept apart from a Chat, which can be copied and sent to another process: this can't."""
    home = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    home.filters["tojson"] = _as_json
    home.globals["raise_exception"] = _refused
    try:
        return home.from_string(template)
    except jinja2.TemplateError as error:
        raise BadTemplate(f"line {getattr(error, 'lineno', '?')}: {error}") from None


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)  # Jinja's own is for HTML


def _refused(message: str) -> None:
    raise jinja2.TemplateError(message)

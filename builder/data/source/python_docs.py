"""The texts of Python's own documentation that ship with its standard library: a real corpus with no download."""

from __future__ import annotations

from ...errors import ConfigError, Problem
from ...registry import register
from ..split import Split
from . import TextSource


@register("data", "python_docs")
class PythonDocs(TextSource):
    """About 460,000 characters of English prose and code, one document per help topic (`pydoc_data.topics`)."""

    class Config(TextSource.Config):
        """Whole topics are held out by default: they are independent texts."""

        split: Split = "documents"

    def documents(self) -> list[str]:
        """The topics, sorted by name. Raises ConfigError where Python was installed without them."""
        return list(topics().values())


def topics() -> dict[str, str]:
    """The help texts by the names of their topics, sorted. Raises ConfigError where there are none."""
    try:
        from pydoc_data.topics import topics as found
    except ImportError as error:
        rule = "the help texts of the standard library are read"
        fix = "data=text data.path=<your text>, or a Python with its whole standard library"
        given = f"a source that needs pydoc_data.topics, which this Python lacks ({error})"
        raise ConfigError([Problem("data.name", given, rule, fix)]) from error
    return {name: found[name] for name in sorted(found)}

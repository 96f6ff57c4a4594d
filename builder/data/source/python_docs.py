"""The texts of Python's own documentation that ship with its standard library: a real corpus with no download."""

from __future__ import annotations

from ...errors import ConfigError, Problem
from ...registry import register
from ..split import Split
from . import Source


@register("data", "python_docs")
class PythonDocs(Source):
    """About 460,000 characters of English prose and code, one document per help topic (`pydoc_data.topics`)."""

    class Config(Source.Config):
        """Whole topics are held out by default: they are independent texts."""

        split: Split = "documents"

    def documents(self) -> list[str]:
        """The topics, sorted by name. Raises ConfigError where Python was installed without them."""
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise ConfigError(
                [
                    Problem(
                        "data.name",
                        f"python_docs, but this Python has no pydoc_data.topics ({error})",
                        "python_docs reads the help texts of the standard library",
                        "data=text data.path=<your text>, or a Python with its whole standard library",
                    )
                ]
            ) from error
        return [topics[name] for name in sorted(topics)]

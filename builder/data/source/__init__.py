"""The room of data sources: each turns its config into a list of texts, always in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import Field

from ... import component
from ..split import Split


class Source(component.Component, ABC):
    """A source of text, made as `cls(config)`; it reads nothing before `documents` is called."""

    class Config(component.Config):
        """What every source knows: the share of characters held out for validation, and how they are chosen.

        `tail` cuts the last characters off the whole text; `documents` takes whole documents, in order of hash.
        """

        val_fraction: float = Field(default=0.1, gt=0, lt=1)
        split: Split = "tail"

    def __init__(self, config: Config):
        self.config = config

    @abstractmethod
    def documents(self) -> list[str]:
        """The texts, in a stable order. Raises ArchlabError, with the config path, when there are none to read."""

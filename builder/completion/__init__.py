"""Completion on the command line: what may be typed next, and how bash is told of it."""

from .shell import answer

__all__ = ["answer"]

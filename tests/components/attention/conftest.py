"""Kernels run as they are written, not compiled."""

from tests.plain_flex import plain_flex  # noqa: F401

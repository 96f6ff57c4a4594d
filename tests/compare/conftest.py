"""A stand-in for the W&B service that can be read, which the client of this process speaks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import wandb

from tests.compare.wandb_reads import Readable
from tests.wandb_service import serving


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Readable]:
    with serving(Readable()) as service:
        assert isinstance(service, Readable)
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        wandb.teardown()  # what the process knows of another server
        yield service
        wandb.teardown()


@pytest.fixture
def logged_out(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[None]:
    """No key, in the environment or at home."""
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "nothing"))
    wandb.teardown()
    yield
    wandb.teardown()

"""A stand-in for the W&B service, which the client of this process speaks to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import wandb

from tests.wandb_service import Service, serving


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with serving() as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        wandb.teardown()  # what the process knows of another server
        yield service
        wandb.teardown()

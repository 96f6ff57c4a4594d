"""What every test stands on: no hub, no W&B server, one thread per worker, a fixed seed."""

import os

os.environ.update(
    HF_HUB_OFFLINE="1",  # before anything imports transformers
    TOKENIZERS_PARALLELISM="false",
    WANDB_ERROR_REPORTING="false",
    WANDB_MODE="offline",
    WANDB_SILENT="true",
)
os.environ["OMP_NUM_THREADS"] = "1"  # tiny tensors gain nothing from two, and suffer when others run

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seed() -> int:
    """Seeds torch before every test, so that a test gives the same numbers alone and in company."""
    torch.manual_seed(0)
    return 0

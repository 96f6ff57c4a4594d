"""FlexAttention without its compiler, which takes about a second for each shape and changes no number."""

import pytest
from torch.nn.attention import flex_attention


@pytest.fixture(autouse=True)
def plain_flex(monkeypatch):
    """For the conftest of every folder whose tests run all kernels."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)

"""How widely heads look, as a run logs it: between 0 and log S, and for even weights the mean of log t."""

import math

import torch

from builder.experiments.attention_capture import Captured
from tests.tiny_run import rows, trained


def test_even_rows_have_the_entropy_of_their_length():
    weights = torch.tril(torch.ones(1, 2, 5, 5)) / torch.arange(1, 6)[:, None]
    weights[0, 1] = torch.eye(5)  # looks at itself alone
    weights[0, :, 0] = 0  # a row that sees nothing doesn't count
    found = Captured({"layers.0.mixer": [weights]}).entropies()["layers.0.mixer"]
    assert abs(found[0].item() - sum(map(math.log, range(2, 6))) / 4) < 1e-6 and found[1].item() == 0


def test_a_run_logs_every_head(tmp_path):
    path = trained(tmp_path, "callbacks=[default,attention_entropy]", "logger=none").path
    found = [row for row in rows(path) if "attention/layer-0/head-0/entropy" in row]
    assert found
    for row in found:
        told = {key: value for key, value in row.items() if key.endswith("/entropy")}
        assert len(told) == 2 and all(0 < value <= math.log(16) for value in told.values())

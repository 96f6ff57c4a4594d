"""Where tokens went in a run: what is logged is what routers chose, and a resumed run tells the same, bit for bit."""

import os
import signal
from functools import partial

import pytest
import torch

from builder.components.router import Router
from builder.components.router.topk import TopK
from builder.experiments.train import Stopped
from builder.training.tallies import Tallies
from tests.tiny_run import MOE, checkpoint, only_run, plant, resumed, rows, same, summary, trained, without_probes

SPEED = 2.0**-10  # preferences are whole multiples of a power of two, without rounding
RUN = [*MOE, "model.moe.capacity_factor=1.0", f"model.moe.balance.bias_speed={SPEED}", "model.embedding.dropout=0.2"]
LAYERS, WINDOW, CHOICES = (0, 2), 3, 4 * 16 * 2  # of a step: sequences, tokens, top_k
PREFERENCES = [f"layers.{layer}.ffn.router.preference" for layer in LAYERS]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory):
    """(the run, all that routers did in training, in order: chosen experts, over, dropped)."""
    routed = []

    def route(self, *args):
        routing = whole(self, *args)
        if self.training and routing.chosen is not None:
            routed.append((routing.chosen.flatten().tolist(), routing.over.item(), routing.dropped.item()))
        return routing

    whole = TopK.route
    with pytest.MonkeyPatch.context() as patch:
        without_probes(patch)
        patch.setattr(TopK, "route", route)
        return trained(tmp_path_factory.mktemp("watched"), *RUN).path, routed


@pytest.fixture(scope="module")
def whole(watched):
    return watched[0]


def told(path):
    return {row["step"]: {k: v for k, v in row.items() if k.startswith("moe/")} for row in rows(path) if routing(row)}


def routing(row):
    return any(key.startswith("moe/") for key in row)


def test_what_is_logged_is_what_was_chosen(watched):
    path, routed = watched
    assert list(told(path)) == [3, 6, 9, 12]
    assert len(routed) == 12 * len(LAYERS)
    for step, row in told(path).items():
        for place, layer in enumerate(LAYERS):
            passes = routed[place :: len(LAYERS)][step - WINDOW : step]
            chosen = [expert for experts, _, _ in passes for expert in experts]
            counts = [chosen.count(expert) for expert in range(4)]
            assert sum(counts) == WINDOW * CHOICES
            assert row[f"moe/{layer}/max_over_mean"] == pytest.approx(max(counts) * 4 / sum(counts))
            assert row[f"moe/{layer}/dead"] == counts.count(0)
            assert row[f"moe/{layer}/overflow"] == pytest.approx(sum(over for _, over, _ in passes) / sum(counts))
            assert row[f"moe/{layer}/dropped"] == pytest.approx(sum(lost for *_, lost in passes) / sum(counts))
        assert row["moe/all/max_over_mean"] == max(row[f"moe/{layer}/max_over_mean"] for layer in LAYERS)
    figures = [tuple(row.values()) for row in told(path).values()]
    assert len(set(figures)) == 4, "each window is its own"
    assert all(row["moe/all/overflow"] > 0 for row in told(path).values())


def test_each_row_has_few_keys_and_its_axes(whole):
    for row in rows(whole):
        assert row["tokens"] == row["step"] * 64
        keys = {key.rpartition("/")[0] for key in row if key.startswith("moe/")}
        assert keys in (set(), {"moe/0", "moe/2", "moe/all"})
    assert sum(map(routing, rows(whole))) == 4


def test_the_summary_and_the_picture_are_of_the_last_window(whole):
    said, last = summary(whole)["routing"], told(whole)[12]
    assert said["layers"].keys() == {"0", "2"}
    for where, figures in (said["layers"] | {"all": said["all"]}).items():
        assert {f"moe/{where}/{name}": value for name, value in figures.items()}.items() <= last.items()
    assert (whole / "moe_load.png").read_bytes().startswith(b"\x89PNG")


def test_without_experts_nothing_is_told(tmp_path):
    path = trained(tmp_path, "trainer.max_steps=4").path
    assert not any(map(routing, rows(path)))
    assert summary(path)["routing"] == {}
    assert not (path / "moe_load.png").exists()
    assert "Routing" not in checkpoint(path)["callbacks"]


def test_a_run_too_short_for_a_line_tells_what_it_counted(tmp_path):
    path = trained(tmp_path, *RUN, "trainer.max_steps=2", "trainer.log_every_n_steps=10").path
    assert not any(map(routing, rows(path)))
    assert summary(path)["routing"]["layers"]["0"]["max_over_mean"] >= 1
    assert (path / "moe_load.png").is_file()


def test_preferences_are_in_the_checkpoint_and_moved_once_a_step(whole):
    for name in ("last", "best"):
        contents = checkpoint(whole, name)
        for key in PREFERENCES:
            steps = contents["state_dict"][key] / SPEED
            assert steps.dtype == torch.float32 and steps.any()
            assert torch.equal(steps, steps.round()) and steps.abs().max() <= contents["global_step"]


def test_nothing_but_steps_settles(tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(Router, "settle", lambda self, counts, speed: told.append((counts.sum().item(), speed)))
    path = trained(tmp_path, *RUN).path  # validated three times
    assert told == [(CHOICES, SPEED)] * 12 * len(LAYERS)
    assert not any(checkpoint(path)["state_dict"][key].any() for key in PREFERENCES), "nothing else moves them"


def cut(folder, monkeypatch, step: int, *more: str):
    """The run, interrupted after a step."""
    with monkeypatch.context() as patch:
        plant(patch, step, partial(os.kill, os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            trained(folder, *RUN, *more)
    return only_run(folder)


# Between two log lines, before the first one too, on one, and after a validation.
@pytest.mark.parametrize("step", [1, 5, 6, 8, 11])
def test_interrupted_and_resumed_is_the_whole_run(whole, tmp_path, monkeypatch, step):
    path = cut(tmp_path, monkeypatch, step)
    assert rows(path) == [row for row in rows(whole) if row["step"] <= step]
    resumed(path)
    assert rows(path) == rows(whole)
    assert summary(path)["routing"] == summary(whole)["routing"]
    assert (path / "moe_load.png").read_bytes() == (whole / "moe_load.png").read_bytes()
    for name in ("last", "best"):
        ours, theirs = checkpoint(path, name), checkpoint(whole, name)
        for key in ("state_dict", "optimizer_states", "tallies", "callbacks", "global_step"):
            assert same(ours[key], theirs[key]), (name, key)


def test_the_last_window_outlives_an_interruption(tmp_path, monkeypatch):
    path = resumed(cut(tmp_path, monkeypatch, 6, "trainer.max_steps=7")).path
    assert list(told(path)) == [3, 6], "after it came no other line"
    said = summary(path)["routing"]["layers"]["2"]
    assert {f"moe/2/{name}": value for name, value in said.items()}.items() <= told(path)[6].items()


def test_counts_that_are_not_kept_are_missed(whole, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Tallies, "state", lambda self, model: {})
        path = cut(tmp_path, monkeypatch, 5)
    resumed(path)
    assert told(path)[3] == told(whole)[3]
    assert told(path)[6] != told(whole)[6]
    assert told(path)[9] == told(whole)[9]

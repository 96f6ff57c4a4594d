"""The page in a real browser: it draws without a network, and its console says nothing."""

import re

import pytest

from builder.compare import page, pareto, scaling
from tests.compare.browser import look
from tests.compare.synthetic import compared, write

CURVES, POINTS = r'class="js-line"', r'<path class="point"'


@pytest.fixture
def runs(tmp_path):
    for layers in (1, 2, 4, 8):
        for seed in (0, 1):
            loss = {step: 1 + 100 / (1000 * layers) ** 0.5 + 1 / step + seed / 100 for step in range(5, 101, 5)}
            more = {"train/loss": {step: value + 0.1 for step, value in loss.items()}}
            costs = {name: 1000 * layers for name in ("params", "flops_per_token", "state_bytes_per_token")}
            write(tmp_path / f"runs/{layers}-{seed}", loss, seed=seed, more=more, costs=costs, model__n_layers=layers)
    return tmp_path / "runs"


def made(root, out, **knobs):
    found = compared(root, **knobs)
    return page.write(found, pareto.planes(found, None), scaling.law(found), out)


def test_it_draws_and_complains_of_nothing(runs, tmp_path):
    seen = look(made(runs, tmp_path / "out", force=True), tmp_path / "profile")
    assert seen.console == []
    assert seen.count(r'class="main-svg"') >= 2 * 5, "curves, three planes and the law, each with its layers"
    assert seen.count(CURVES) >= 4 * 2 + 3 + 2, (
        "a line and a band a configuration, a front a plane, the law and its band"
    )
    assert seen.count(POINTS) >= 3 * 4 + 4, "each configuration in each plane, and each size under the law"
    for words in ("optimizer steps", "forward FLOPs per token", "state bytes per token", "parameters N", "n_layers=8"):
        assert words in seen.dom
    assert re.search(r'<td data-value="[\d.]+">[\d.]+ ± [\d.]+</td>', seen.dom)
    assert seen.count("<tr") >= 1 + 4 + 1 + 8 + 1 + 6


def test_without_anything_to_draw_it_still_stands(tmp_path):
    write(tmp_path / "runs/a", {}, status="failed", summary={"reason": "no memory"})
    write(tmp_path / "runs/b", {}, status="failed", summary={"reason": "no memory"}, model__n_layers=3)
    seen = look(made(tmp_path / "runs", tmp_path / "out"), tmp_path / "profile")
    assert seen.console == [] and seen.count(CURVES) == 0 and "no memory" in seen.dom


def test_names_are_text_and_never_script(tmp_path):
    """What a config or a reason says stands on the page as it is, and runs nothing."""
    evil = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
    for seed in (0, 1):
        named = {"tokenizer": {"name": "file", "path": f"{evil}{seed}"}, "more": {f"val/{evil}": {50: 1.0, 100: 2.0}}}
        write(tmp_path / f"runs/{seed}", [2.0], seed=seed, **named)
        write(tmp_path / f"runs/f{seed}", [2.0], seed=seed, status="failed", summary={"reason": evil})
    seen = look(made(tmp_path / "runs", tmp_path / "out", force=True), tmp_path / "profile")
    assert seen.console == [] and "<title>taken" not in seen.dom and "onerror=" in seen.dom
    assert seen.count("<img") == 0


def test_it_needs_nothing_from_elsewhere(runs, tmp_path):
    text = made(runs, tmp_path / "out").read_text()
    assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="(?!data:)', text)


@pytest.mark.parametrize("fault", ["throw", "call"])
def test_a_fault_in_the_page_is_seen(fault, runs, tmp_path):
    """What the first test asserts isn't true of any page whatever."""
    file = made(runs, tmp_path / "out", force=True)
    broken = {"throw": "throw new Error('x');", "call": "Plotly.nothing();"}[fault]
    file.write_text(file.read_text().replace("const data =", f"{broken}\nconst data =", 1))
    seen = look(file, tmp_path / "profile")
    assert seen.console and seen.count(CURVES) == 0

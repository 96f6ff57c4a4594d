"""The front against its definition, tried on every pair."""

import json
import random

import pytest

from builder.compare import pareto, speed
from builder.compare.pareto import front
from tests.compare.synthetic import compared, write


def by_definition(points, more, higher):
    signed = [(-cost if more else cost, -value if higher else value) for cost, value in points]
    beaten = [any(a <= c and b <= d and (a, b) != (c, d) for a, b in signed) for c, d in signed]
    return [not lost for lost in beaten]


@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("higher", [False, True])
def test_the_front_is_what_nothing_beats(more, higher):
    draw = random.Random(0)
    for _ in range(200):
        points = [(draw.randrange(6), draw.randrange(6)) for _ in range(draw.randrange(1, 12))]
        assert front(points, more, higher) == by_definition(points, more, higher), points


def test_planes_over_each_cost(tmp_path):
    for layers, params, loss in ((1, 100, 3.0), (2, 200, 2.0), (3, 300, 2.5)):
        write(tmp_path / str(layers), [loss], costs={"params": params}, model__n_layers=layers)
    write(tmp_path / "4", {50: 0.1}, status="failed", costs={"params": 1}, model__n_layers=4)
    found = {plane.name: plane for plane in pareto.planes(compared(tmp_path), None)}
    assert set(found) == {"params", "flops_per_token", "state_bytes_per_token"}
    assert [(spot.cost, spot.value) for spot in found["params"].front] == [(100, 3.0), (200, 2.0)]
    assert len(found["params"].spots) == 3, "what failed isn't among them"


def record(folder, name, config, decode, machine="chip", batch=1):
    folder.mkdir(parents=True, exist_ok=True)
    timings = [{"what": "training", "batch": 2, "tokens_per_second": {"archlab": 9.0}}]
    timings.append({"what": "decode", "batch": batch, "tokens_per_second": {"archlab": decode}})
    content = {"machine": {"device_name": machine}, "workload": {"threads": 1, "dtype": "float32"}, "timings": timings}
    (folder / f"{name}.json").write_text(json.dumps(content | {"config": config}))


def test_decode_speed_is_that_of_the_bench_on_one_machine(tmp_path):
    from builder.compare.yaml_values import parse

    configs = []
    for layers, loss in ((1, 3.0), (2, 2.0), (3, 2.5)):
        folder = write(tmp_path / "main" / str(layers), [loss], model__n_layers=layers)
        configs.append(parse((folder / "config.yaml").read_text()))
    assert speed.find(compared(tmp_path).rows) is None
    record(tmp_path / "bench", "1", configs[0] | {"seed": 9}, 400.0)
    assert speed.find(compared(tmp_path).rows) is None, "one alone is no comparison"
    record(tmp_path / "bench", "2", configs[1], 200.0)
    record(tmp_path / "bench", "3", configs[2], 9000.0, machine="another")
    for n in range(2):
        record(tmp_path / "bench", f"larger-{n}", configs[n], 7000.0, batch=4)
    for n in range(3):
        record(tmp_path / "bench", f"other-{n}", {"model": {"d_model": n}}, 8000.0, machine="busy")
    (tmp_path / "bench" / "4.json").write_text("{}")
    (tmp_path / "main" / "0").mkdir()  # a seed that failed before it was a run changes nothing
    (tmp_path / "main" / "0" / "summary.json").write_text('{"status": "failed"}')
    words = [["model.n_layers=1", "seed=1"], ["model.n_layers=1", "seed=0"]]
    points = [{"job": n, "overrides": each} for n, each in enumerate(words)]
    (tmp_path / "main" / "plan.json").write_text(json.dumps({"points": points}))
    found = compared(tmp_path)
    speeds = speed.find(found.rows)
    assert {row.used[0].name: speeds.of(row) for row in found.rows} == {"1": 400, "2": 200, "3": None}
    plane = next(plane for plane in pareto.planes(found, speeds) if plane.name == "decode")
    assert plane.more and "chip" in plane.axis and [spot.cost for spot in plane.front] == [200, 400]

"""The heat map: every expert where it stands, even white, busy red, idle blue, dead in a colour of its own."""

import io
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from builder.experiments.heat_map import draw
from builder.experiments.load import Load

DEAD = (255, 213, 0)


def picture(rows) -> np.ndarray:
    """The heat map of these counts as (height, width, 3) integers."""
    loads = {layer: Load.of(torch.tensor([*counts, 0.0, 0.0])) for layer, counts in rows.items()}
    file = io.BytesIO()
    draw(loads, "Routing load after step 12", file)
    assert file.getvalue().startswith(b"\x89PNG")
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def cells(image: np.ndarray, layers: int, experts: int):
    """The colours near the corner of each cell: rows of (r, g, b). The frame around the cells is black, and wide."""
    black = (image == 0).all(-1)
    top, *_, bottom = [y for y in range(len(image)) if black[y].mean() > 0.3]
    left, *_, right = [x for x in range(image.shape[1] * 7 // 8) if black[:, x].mean() > 0.3]
    ys = [top + (bottom - top) * (row + 0.12) / layers for row in range(layers)]
    xs = [left + (right - left) * (column + 0.12) / experts for column in range(experts)]
    return [[tuple(image[round(y), round(x)]) for x in xs] for y in ys]


def test_each_expert_has_the_colour_of_its_load():
    seen = cells(picture({0: [10, 10, 10, 10], 4: [0, 28, 8, 4]}), 2, 4)
    assert all(min(colour) > 240 for colour in seen[0]), "even is white"
    dead, busy, less, idle = seen[1]
    assert dead == DEAD
    assert busy[0] > busy[2] + 80, "more than its share is red"
    assert less[2] > less[0] and idle[2] > idle[0] + 80 and idle[0] < less[0], "less is blue, the less the bluer"


def test_half_is_as_far_from_even_as_twice():
    (row,) = cells(picture({0: [1, 2, 4, 1]}), 1, 4)
    half, even, twice, _ = (sum(abs(channel - 255) for channel in colour) for colour in row)
    assert even < 40 < min(half, twice)


@pytest.mark.parametrize(("layers", "experts"), [(1, 2), (2, 4), (6, 8), (48, 128), (94, 256)])
def test_it_fits_whatever_the_model(layers, experts):
    counts = torch.randint(1, 50, (layers, experts))
    alive, dying = picture(dict(enumerate(counts.tolist()))), counts.clone()
    assert alive.shape[0] < 1300 and alive.shape[1] < 1700
    dying[layers // 2, experts // 2] = 0
    marked = [(image == DEAD).all(-1).sum() for image in (alive, picture(dict(enumerate(dying.tolist()))))]
    assert marked[1] > marked[0], "one dead expert is seen, even as one of many"


def test_layers_may_have_other_numbers_of_experts_and_nothing_to_tell():
    seen = cells(picture({1: [3, 5, 4, 4], 2: [4, 4], 7: [0, 0, 0, 0]}), 3, 4)
    grey = (217, 217, 217)
    assert seen[1][2:] == [grey, grey] and seen[2] == [grey] * 4
    assert grey not in seen[0]


def test_the_library_that_draws_is_imported_when_something_is_drawn():
    code = "import sys, {}; print('matplotlib' in sys.modules)"
    said = [
        subprocess.run([sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=True).stdout
        for module in ("builder.experiments.heat_map", "matplotlib.figure")
    ]
    assert said == ["False\n", "True\n"]

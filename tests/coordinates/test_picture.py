"""The picture: lines that rise where something grows, level ones where nothing does, and a file at its place."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from builder.coordinates import Coordinates, draw, write
from builder.coordinates.trace import Quantity
from builder.errors import ArchlabError

WIDTHS = (64, 128, 256)
BLUE = (31, 119, 180)  # the first of matplotlib's colours


def result(exponent, layers=1, steps=2):
    width = torch.tensor(WIDTHS, dtype=torch.float64)[:, None, None]
    values = (width**exponent).expand(len(WIDTHS), 2, steps + 1)
    quantities = [Quantity("logits"), *(Quantity(what, n) for what in ("ffn", "stream") for n in range(layers))]
    flat = torch.ones_like(values)
    sizes = {quantity: values if quantity.layer is None else flat + 1 for quantity in quantities}
    return Coordinates(WIDTHS, sizes, sizes)


def picture(found) -> np.ndarray:
    file = io.BytesIO()
    draw(found, "Coordinates of config 0123", file)
    assert file.getvalue().startswith(b"\x89PNG")
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def ends(image):
    """The heights of the blue line at its two ends, in the last panel of the upper row."""
    upper = (np.abs(image[: image.shape[0] // 2, image.shape[1] * 3 // 4 :] - BLUE).sum(-1)) < 30
    columns = upper.any(0).nonzero()[0]
    return [upper[:, column].nonzero()[0].mean() for column in (columns[0], columns[-1])]


@pytest.mark.parametrize(("exponent", "rises"), [(1.0, 1), (0.0, 0), (-0.5, -1)])
def test_a_line_rises_where_something_grows(exponent, rises):
    left, right = ends(picture(result(exponent)))
    assert np.sign(round((left - right) / 20)) == rises  # rows are counted from above


@pytest.mark.parametrize(("layers", "steps"), [(1, 1), (4, 4), (24, 4)])
def test_it_fits_whatever_the_model(layers, steps):
    height, width, _ = picture(result(0.5, layers, steps)).shape
    assert height < 900 and width < 1700


def test_it_is_written_below_the_root(tmp_path):
    path = write(result(0.5), "Coordinates", str(tmp_path / "new"))
    assert path == tmp_path / "new" / "coordinates.png"
    assert path.read_bytes().startswith(b"\x89PNG")
    (tmp_path / "file").touch()
    with pytest.raises(ArchlabError, match=r"output\.root: .* can't be written"):
        write(result(0.5), "Coordinates", str(tmp_path / "file"))

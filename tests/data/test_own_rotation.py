"""Clients that see their images at an angle of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headstart.data import Schema, from_clients, iid, load, open_store, write_store
from headstart.data import _dataset_options as dataset_options
from headstart.data import _digest as digest
from headstart.data._federated import FederatedDataset
from headstart.data._rotation import draw_angle, rotate_images
from headstart.errors import ConfigError

DIGITS = {"source": "digits", "partition": "iid", "clients": 10, "new_clients": 3}


def images(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Random images with pixels in 0 … 99."""
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 7, 7, 1), (2, 6, 6, 3)])
def test_quarter_turns_are_those_of_numpy_to_the_bit(dtype: str, shape: tuple[int, ...]) -> None:
    x = images(dtype, shape)
    for turns in (-2, -1, 0, 1, 2):
        rotated = rotate_images(x, 90 * turns)
        assert rotated.dtype == x.dtype
        np.testing.assert_array_equal(rotated, np.rot90(x, turns, axes=(1, 2)))


def test_half_a_turn_keeps_images_that_are_not_square_and_no_turn_keeps_all() -> None:
    x = images("uint8", (2, 5, 8, 3))
    np.testing.assert_array_equal(rotate_images(x, 0), x)
    np.testing.assert_array_equal(rotate_images(x, 180), x[:, ::-1, ::-1])


def test_a_linear_image_is_interpolated_exactly() -> None:
    """Bilinear interpolation of f(row, column) = 2 row + column is f at the rotated point."""
    row, column = np.indices((9, 9)).astype(float)
    angle = np.deg2rad(30)
    y, x = row - 4, column - 4
    source_row = x * np.sin(angle) + y * np.cos(angle) + 4
    source_column = x * np.cos(angle) - y * np.sin(angle) + 4
    inside = (np.minimum(source_row, source_column) >= 0) & (
        np.maximum(source_row, source_column) <= 8
    )
    rotated = rotate_images((2 * row + column)[None], 30)[0]
    np.testing.assert_allclose(rotated[inside], (2 * source_row + source_column)[inside], atol=1e-7)
    assert inside.sum() > 60 and rotated[0, 0] == 0  # the corner comes from outside the image


def test_whole_numbers_are_rounded_not_cut_off() -> None:
    """A uniform image stays uniform in its middle; cutting 9.999… off would give 9."""
    rotated = rotate_images(np.full((1, 9, 9), 10, np.uint8), 33.3)
    assert set(rotated[0, 3:6, 3:6].ravel().tolist()) == {10}


def test_every_client_known_or_new_has_an_angle_of_its_own() -> None:
    plain = dataset_options.build_dataset(DIGITS, seed=3)
    own = dataset_options.build_dataset({**DIGITS, "own_rotation": 180}, seed=3)
    angles = []
    for client in range(plain.clients):
        angles.append(draw_angle(3, client, 180))
        before, after = plain.client(client), own.client(client)
        np.testing.assert_array_equal(after.x_train, rotate_images(before.x_train, angles[-1]))
        np.testing.assert_array_equal(after.x_test, rotate_images(before.x_test, angles[-1]))
        assert not np.array_equal(after.x_test, before.x_test)
    np.testing.assert_array_equal(own.y, plain.y)
    assert own.x.dtype == plain.x.dtype and len(set(angles)) == plain.clients == 10
    assert "own rotation up to 180°" in own.description and own.new_clients == 3


def test_angles_are_uniform_and_do_not_depend_on_the_number_of_clients() -> None:
    """Of 2,000 angles in [−90, 90], mean 0 and deviation 90/√3 have standard errors 1.2 and 0.5."""
    angles = np.array([draw_angle(0, client, 90) for client in range(2000)])
    assert np.abs(angles).max() <= 90
    assert abs(angles.mean()) < 4 and angles.std() == pytest.approx(90 / np.sqrt(3), abs=2)
    client = (images("uint8", (2, 4, 4)), [0, 1], images("uint8", (1, 4, 4)), [1])
    schema = Schema(shape=(4, 4), classes=2)
    few, many = (from_clients([client] * n, schema).with_own_rotation(5) for n in (3, 6))
    np.testing.assert_array_equal(many.part(0, 3).x, few.x)
    with_new = from_clients([client] * 6, schema, new_clients=2).with_own_rotation(5)
    np.testing.assert_array_equal(with_new.x, many.x)


def test_it_repeats_with_the_seed_and_leaves_the_labels_of_own_labels_alone() -> None:
    table = {**DIGITS, "own_rotation": 45, "own_labels": True}
    one, again, other = (dataset_options.build_dataset(table, seed=s) for s in (3, 3, 4))
    assert one.digest() == again.digest() != other.digest()
    labels = dataset_options.build_dataset({**DIGITS, "own_labels": True}, seed=3)
    np.testing.assert_array_equal(one.y, labels.y)


def test_the_table_states_it_only_if_it_is_set() -> None:
    """So the fingerprints of experiments without it are those of before."""
    resolve = dataset_options.resolve_data_options
    plain = dataset_options.build_dataset(DIGITS, seed=1)
    assert resolve({**DIGITS, "own_rotation": 30})["own_rotation"] == 30.0
    for off in (0, 0.0, False):
        assert resolve({**DIGITS, "own_rotation": off}) == resolve(DIGITS)
        table = {**DIGITS, "own_rotation": off}
        assert dataset_options.build_dataset(table, seed=1).digest() == plain.digest()
    assert plain.with_own_rotation(1, degrees=0).digest() == plain.digest()


def test_data_read_in_place_are_rotated_in_pieces_and_left_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load("digits").split(iid(clients=4), seed=0)
    write_store(tmp_path / "store", plain)
    ten_images = partial(digest.iterate_pieces, size=10 * 64)
    monkeypatch.setattr(digest, "iterate_pieces", ten_images)
    found = open_store(tmp_path / "store").with_own_rotation(2)
    monkeypatch.undo()
    assert found.stored_digest is None
    assert found.digest() == plain.with_own_rotation(2).digest()
    assert open_store(tmp_path / "store").digest() == plain.digest()


@pytest.mark.parametrize("wrong", [-1, 181, float("nan"), float("inf"), True])
def test_angles_beyond_half_a_turn_are_refused(wrong: float) -> None:
    message = r"data\.own_rotation=.* must be a number of degrees between 0 \(off\) and 180"
    with pytest.raises(ConfigError, match=message):
        dataset_options.resolve_data_options({"source": "digits", "own_rotation": wrong})
    if wrong is not True:
        with pytest.raises(ConfigError, match="must be between 0 and 180"):
            load("digits").split(iid(clients=5), seed=1).with_own_rotation(degrees=wrong)


def text() -> FederatedDataset:
    """Texts of nine tokens."""
    one = (np.zeros((2, 9), int), np.zeros((2, 9), int), np.zeros((1, 9), int), [[0] * 9])
    return from_clients([one], Schema(shape=(9,), classes=5, vocabulary=5))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: dataset_options.build_dataset({"source": "synthetic", "features": 64}, seed=0),
         r"examples of shape \(64,\)"),
        (text, "text"),
    ],
)  # fmt: skip
def test_data_that_are_not_images_are_refused(make: Any, kind: str) -> None:
    message = f"own_rotation rotates images, and these data are {kind}; use data of shape"
    with pytest.raises(ConfigError, match=message):
        make().with_own_rotation()


def test_the_option_is_named_where_the_data_are_not_images() -> None:
    table = {"source": "synthetic", "features": 64, "own_rotation": 90}
    with pytest.raises(ConfigError, match=r"^data\.own_rotation rotates images.*channels\)$"):
        dataset_options.build_dataset(table, seed=0)

"""The real files, in the folder HEADSTART_DATA names: known counts, and nothing else.

Where a number comes from is said beside it.
"""

import jax.numpy as jnp
import numpy as np
import pytest

from headstart.data import Pool, load
from headstart.data._dataset_options import build_dataset
from headstart.data.sources import SOURCES

pytestmark = pytest.mark.data


def loaded(name: str) -> Pool:
    missing = SOURCES[name].missing()
    if missing:
        pytest.skip(f"{missing[0].name} is not here")
    return load(name)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_mnist_and_fashion(name: str) -> None:
    pool = loaded(name)
    assert pool.x.shape == (60_000, 28, 28, 1) and pool.x.max() == 255
    assert pool.test_x is not None and pool.test_x.shape == (10_000, 28, 28, 1)
    if name == "fashion-mnist":
        assert np.bincount(pool.y).tolist() == [6000] * 10
    else:  # the counts of MNIST's own page
        assert np.bincount(pool.y).tolist() == [
            5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]  # fmt: skip


@pytest.mark.slow
def test_cifar10() -> None:
    pool = loaded("cifar10")
    assert pool.x.shape == (50_000, 32, 32, 3) and np.bincount(pool.y).tolist() == [5000] * 10
    assert pool.test_y is not None and np.bincount(pool.test_y).tolist() == [1000] * 10
    assert pool.schema.class_names[pool.y[0]] == "frog"  # the first image of data_batch_1
    # Mean red, green and blue of the training images, as everybody normalises with.
    assert np.allclose(
        pool.x.reshape(-1, 3).mean(axis=0, dtype=np.float64) / 255,
        [0.4914, 0.4822, 0.4465],
        atol=1e-4,
    )


def test_table_2_of_the_paper_on_mnist() -> None:
    loaded("mnist")
    table = {"source": "mnist", "clients": 50, "a": 196, "a_test": 32}
    data = build_dataset(table, seed=0)
    assert sorted(data.train_counts.tolist()) == [490] * 25 + [980] * 25
    assert sorted(data.test_counts.tolist()) == [80] * 25 + [160] * 25
    assert data.classes_of(0).tolist() == [228] * 5 + [0] * 5
    assert data.classes_of(25).tolist() == [114, 0, 0, 0, 0, 456, 0, 0, 0, 0]


def test_writers() -> None:
    pool = loaded("qmnist-writers")
    data = pool.split()
    assert (data.known_clients, data.new_clients) == (539, 297)
    sizes = np.diff(data.offsets)
    assert sizes[:539].min() == 19 and sizes[:539].max() == 131
    assert sizes[:539].sum() == 60_000 and sizes[539:].sum() == 10_000
    assert pool.split(new_clients=50).clients == 589


def test_shakespeare() -> None:
    data = loaded("shakespeare").split()
    assert data.clients == 447 and data.name(0) == "hamlet/HAMLET"
    characters = [*data.schema.class_names]
    text = "".join(characters[t] for t in data.client(0).x_train[0])
    assert text.startswith("[Aside] A little more than kin, and less than kind.\nNot so, my lord;")
    assert np.count_nonzero(data.x == 80) <= 1  # one dollar sign in all of Shakespeare


def test_hospitals() -> None:
    data = loaded("heart-disease").split()
    assert np.diff(data.offsets).tolist() == [303, 294, 123, 200]
    # Patients with disease: the class distribution in heart-disease.names.
    assert [data.classes_of(c)[1] for c in range(4)] == [139, 106, 115, 149]
    decoded = np.asarray(data.schema.decode(jnp.asarray(data.x)))
    assert np.abs(decoded).max() < 8


def test_activities() -> None:
    data = loaded("wisdm").split()
    assert data.clients == 36 and len(data.y) == 5418
    # The authors' file says one more of each: they counted the header's list of classes too.
    assert np.bincount(data.y).tolist() == [2081, 1625, 632, 528, 306, 246]
    decoded = np.asarray(data.schema.decode(jnp.asarray(data.x)))
    assert np.abs(decoded).max() < 25 and 0.3 < decoded.std() < 3


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-labels", "shards", "iid"])
def test_every_partition_on_mnist(partition: str) -> None:
    loaded("mnist")
    data = build_dataset({"source": "mnist", "partition": partition, "new_clients": 3}, seed=1)
    assert data.new_clients == 3 and data.x.dtype == np.uint8

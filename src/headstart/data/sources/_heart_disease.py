"""Heart disease in four hospitals: a very small real federation.

Of the 13 columns, numbers are stored unchanged and standardised by the schema with fixed constants
(mean and deviation of the Cleveland patients as commonly published, rounded), because no party of a
federation could compute them across hospitals. Categories become one column per value. A missing
number is stored as the mean, so that the model sees 0, and a second column marks it as missing. A
missing category is 0 in all its columns. A cholesterol or blood pressure of 0 counts as missing.
"""

from __future__ import annotations

import numpy as np

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import DataError

COLUMNS = (
    "age",
    "sex",
    "cp",
    "trestbps",
    "chol",
    "fbs",
    "restecg",
    "thalach",
    "exang",
    "oldpeak",
    "slope",
    "ca",
    "thal",
)
NUMBERS = {
    "age": (54.0, 9.0),
    "trestbps": (132.0, 18.0),
    "chol": (247.0, 52.0),
    "thalach": (150.0, 23.0),
    "oldpeak": (1.0, 1.2),
    "ca": (0.7, 0.9),
    "sex": (0.0, 1.0),
    "fbs": (0.0, 1.0),
    "exang": (0.0, 1.0),
}
"""Column: mean and deviation."""
CATEGORIES = {"cp": (1, 2, 3, 4), "restecg": (0, 1, 2), "slope": (1, 2, 3), "thal": (3, 6, 7)}
INDICATED = ("trestbps", "chol", "thalach", "oldpeak", "ca", "fbs", "exang")
"""Columns with a companion that is 1 where the value is missing."""
FEATURES = (
    *NUMBERS,
    *(f"{column}={value}" for column, values in CATEGORIES.items() for value in values),
    *(f"{column}_missing" for column in INDICATED),
)
_URL = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/"
_DIGESTS = {
    "cleveland": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    "hungarian": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    "switzerland": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    "va": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
}
HOSPITALS = tuple(_DIGESTS)
FILES = tuple(
    DataFile(
        "heart_disease",
        f"processed.{hospital}.data",
        f"{_URL}processed.{hospital}.data",
        f"sha256:{digest}",
        f"sha256:{digest}",
    )
    for hospital, digest in _DIGESTS.items()
)


def load() -> Pool:
    """Return 920 patients of four hospitals, labelled by heart disease (num > 0)."""
    contents = downloads.read(FILES)
    parsed = [parse(content, file.name) for content, file in zip(contents, FILES, strict=True)]
    rest = len(FEATURES) - len(NUMBERS)
    return Pool(
        name="heart-disease",
        x=np.concatenate([x for x, _ in parsed]),
        y=np.concatenate([y for _, y in parsed]),
        schema=Schema(
            shape=(len(FEATURES),),
            classes=2,
            shift=tuple(mean for mean, _ in NUMBERS.values()) + (0.0,) * rest,
            scale=tuple(1 / deviation for _, deviation in NUMBERS.values()) + (1.0,) * rest,
            feature_names=FEATURES,
            class_names=("absent", "present"),
        ),
        owner=np.repeat(np.arange(len(parsed)), [len(y) for _, y in parsed]),
        owner_names=HOSPITALS,
    )


def parse(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Parse one hospital's comma-separated lines into features and labels."""
    lines = content.decode("ascii", "replace").split("\n")
    rows = [_parse_row(line, f"{name} line {n}") for n, line in enumerate(lines, 1) if line.strip()]
    if not rows:
        raise DataError(f"{name} is empty; download it again")
    x, y = zip(*rows, strict=True)
    return np.array(x, np.float32), np.array(y, np.int32)


def _parse_row(line: str, where: str) -> tuple[list[float], int]:
    cells = line.strip().split(",")
    try:
        values = [None if cell.strip() == "?" else float(cell) for cell in cells]
    except ValueError:
        raise DataError(f"{where} has a cell that is neither a number nor '?'") from None
    if len(values) != len(COLUMNS) + 1 or values[-1] is None:
        raise DataError(f"{where} does not have 13 values and a diagnosis")
    patient = dict(zip(COLUMNS, values[:-1], strict=True))
    for column in ("chol", "trestbps"):
        patient[column] = patient[column] or None
    return _encode_features(patient, where), int(values[-1] > 0)


def _encode_features(patient: dict[str, float | None], where: str) -> list[float]:
    numbers = [mean if (v := patient[c]) is None else v for c, (mean, _) in NUMBERS.items()]
    if patient["age"] is None or patient["sex"] is None or not np.isfinite(numbers).all():
        raise DataError(f"{where} has no age, no sex or a number that is not finite")
    one_hot = []
    for column, values in CATEGORIES.items():
        if patient[column] is not None and patient[column] not in values:
            raise DataError(f"{where} has {column}={patient[column]}, which is not one of {values}")
        one_hot += [float(patient[column] == value) for value in values]
    return numbers + one_hot + [float(patient[column] is None) for column in INDICATED]


SOURCE = Source(
    name="heart-disease",
    summary="920 patients, 13 clinical values (29 columns), disease or not",
    clients="4 hospitals: Cleveland 303, Hungary 294, Switzerland 123, VA Long Beach 200",
    licence="CC BY 4.0",
    citation="Janosi, Steinbrunn, Pfisterer, Detrano: Heart Disease, UCI 1989",
    home="https://archive.ics.uci.edu/dataset/45",
    load=load,
    files=FILES,
    natural=True,
)

"""WISDM activity recognition: what is a person who carries a phone doing?

Each example summarises ten seconds of an accelerometer in 43 numbers. They are stored unchanged;
the schema scales them with fixed round constants (no statistics across people). A missing peak
distance is stored as the middle, so that the model sees 0, and a second column marks it as missing.
Known defects of the published file are left unchanged: XAVG is always 0 and ZSTANDDEV repeats
XSTANDDEV. Windows carry no time and are split at random, so neighbouring windows may fall into
different splits of one person.
"""

from __future__ import annotations

import numpy as np

from headstart.data import _downloads as downloads
from headstart.data._downloads import DataFile
from headstart.data._example_pool import Pool
from headstart.data._schema import Schema
from headstart.data.sources._source import Source
from headstart.errors import DataError

ACTIVITIES = ("Walking", "Jogging", "Upstairs", "Downstairs", "Sitting", "Standing")
PEAKS = ("XPEAK", "YPEAK", "ZPEAK")
COLUMNS = (
    *(f"{axis}{bin}" for axis in "XYZ" for bin in range(10)),
    *(f"{axis}AVG" for axis in "XYZ"),
    *PEAKS,
    *(f"{axis}ABSOLDEV" for axis in "XYZ"),
    *(f"{axis}STANDDEV" for axis in "XYZ"),
    "RESULTANT",
)
FEATURES = (*COLUMNS, *(f"{peak}_missing" for peak in PEAKS))
_KINDS = {
    "AVG": (0.0, 5.0),
    "PEAK": (1600.0, 1000.0),
    "ABSOLDEV": (4.0, 2.0),
    "STANDDEV": (5.0, 3.0),
    "RESULTANT": (10.0, 3.0),
    "missing": (0.0, 1.0),
}
"""Name ends in: middle and width. All others are the shares of ten bins: 0.1 and 0.05."""
_ARCHIVE = "WISDM_ar_latest.tar.gz"
FILES = (
    DataFile(
        "wisdm",
        "WISDM_ar_v1.1_transformed.arff",
        f"https://www.cis.fordham.edu/wisdm/includes/datasets/latest/{_ARCHIVE}",
        archive=_ARCHIVE,
    ),
)


def find_scaling(feature: str) -> tuple[float, float]:
    """Return the middle and the width by which a feature is scaled."""
    return next((c for end, c in _KINDS.items() if feature.endswith(end)), (0.1, 0.05))


def load() -> Pool:
    """Return 5,418 windows of 36 people, labelled with six activities."""
    x, y, person = parse(downloads.read(FILES)[0], FILES[0].name)
    people, owner = np.unique(person, return_inverse=True)
    return Pool(
        name="wisdm",
        x=x,
        y=y,
        schema=Schema(
            shape=(len(FEATURES),),
            classes=len(ACTIVITIES),
            shift=tuple(find_scaling(f)[0] for f in FEATURES),
            scale=tuple(1 / find_scaling(f)[1] for f in FEATURES),
            feature_names=FEATURES,
            class_names=ACTIVITIES,
        ),
        owner=owner,
        owner_names=[f"person-{p}" for p in people],
    )


def parse(content: bytes, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parse features, activities and people from the lines after ``@data``."""
    lines = content.decode("ascii", "replace").splitlines()
    starts = [n for n, line in enumerate(lines) if line.strip().lower() == "@data"]
    if not starts:
        raise DataError(f"{name} is not an ARFF file: it has no @data; download it again")
    body = enumerate(lines[starts[0] + 1 :], starts[0] + 2)
    rows = [
        _parse_row(line, f"{name} line {n}")
        for n, line in body
        if line.strip() and line[0] not in "%"
    ]
    if not rows:
        raise DataError(f"{name} has no line after @data; download it again")
    x, y, person = zip(*rows, strict=True)
    return np.array(x, np.float32), np.array(y, np.int32), np.array(person)


def _parse_row(line: str, where: str) -> tuple[list[float], int, int]:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(COLUMNS) + 3 or cells[-1] not in ACTIVITIES:
        raise DataError(f"{where} does not have 46 values, the last one an activity")
    try:
        person = int(cells[1])
        window = {
            column: None if column in PEAKS and cell == "?" else float(cell)
            for column, cell in zip(COLUMNS, cells[2:-1], strict=True)
        }
    except ValueError:
        raise DataError(f"{where} has a cell that is not a number") from None
    values = [find_scaling(column)[0] if v is None else v for column, v in window.items()]
    if not np.isfinite(values).all():
        raise DataError(f"{where} has a number that is not finite")
    missing = [float(window[peak] is None) for peak in PEAKS]
    return values + missing, ACTIVITIES.index(cells[-1]), person


SOURCE = Source(
    name="wisdm",
    summary="5,418 windows of ten seconds of a phone's accelerometer, six activities",
    clients="36 people",
    licence="free; the authors ask for citation",
    citation="Kwapisz, Weiss, Moore: Activity Recognition using Cell Phone Accelerometers, "
    "SensorKDD 2010",
    home="https://www.cis.fordham.edu/wisdm/dataset.php",
    load=load,
    files=FILES,
    natural=True,
)

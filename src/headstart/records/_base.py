"""The base of every record: immutable, checked, read from JSON and written to JSON in one place."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator

from headstart.errors import InputError

T = TypeVar("T")
JsonTable = dict[str, Any]
"""A JSON object as it is in a file, before it is checked."""


def finite_or_none(value: object) -> object:
    """Replace NaN and infinities by None: they are not JSON, and no result.

    >>> finite_or_none(float("nan")), finite_or_none(0.5)
    (None, 0.5)
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(finite_or_none)]
"""A finite number, or None if it is missing."""


class Record(BaseModel):
    """One kind of stored result.

    Unknown keys are ignored, so that a record written by a later minor version can be read.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True, serialize_by_alias=True)

    @classmethod
    def from_table(cls, table: object) -> Self:
        """Check a JSON object; raise ValueError with one line if it is not such a record."""
        try:
            return cls.model_validate(table)
        except ValidationError as error:
            raise ValueError(first_problem(error)) from None
        except KeyError as error:
            raise ValueError(f"it has no {error}") from None
        except (TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the record from JSON; NaN and infinities become None."""
        return cls.from_table(parse_table(text))

    def to_table(self) -> JsonTable:
        """Return the JSON object that :meth:`from_table` reads."""
        return self.model_dump(mode="json")

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(self.to_table(), allow_nan=False)


class VersionedRecord(Record):
    """A record that is a file, or a line of one, and states the version of its format.

    Files written before formats had a number are version 1. Once read, a record has the present
    format.
    """

    FORMAT: ClassVar[int] = 2
    format: int = FORMAT

    @classmethod
    def from_table(cls, table: object) -> Self:
        """Check the format before the keys: a later format may have others."""
        return super().from_table(check_format(table, cls.FORMAT))

    @model_validator(mode="before")
    @classmethod
    def _check_format(cls, table: object) -> object:
        """Check nested records too."""
        return check_format(table, cls.FORMAT)


def check_format(table: object, newest: int) -> object:
    """Return the table in the newest format; refuse a format that this version does not know."""
    if not isinstance(table, dict):
        return table
    stated = table.get("format", 1)
    if not isinstance(stated, int) or stated > newest:
        raise ValueError(
            f"it has format {stated}, and this version of Headstart reads formats up to "
            f"{newest}; update Headstart"
        )
    return {**table, "format": newest}


def first_problem(error: ValidationError) -> str:
    """Return the first problem of a failed check as one line."""
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"it has no {place!r}"
    if problem["type"] == "model_type" and not place:
        return f"a table is expected, not {type(problem['input']).__name__}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message


def parse_table(text: str) -> JsonTable:
    """Parse a JSON object; NaN and infinities become None."""
    table = json.loads(text, parse_constant=lambda _: None)
    if not isinstance(table, dict):
        raise ValueError(f"a table is expected, not {type(table).__name__}")
    return table


def parse_file(path: Path, parse: Callable[[str], T]) -> T:
    """Return what ``parse`` makes of the file's text, or raise InputError with one line."""
    with clear_read_errors(path):
        return parse(path.read_text(encoding="utf-8"))


@contextmanager
def clear_read_errors(path: Path) -> Iterator[None]:
    """Turn a missing, unreadable or damaged file into one clear line."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; the folder is incomplete") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise InputError(f"{path} is damaged: it has no {error}") from None
    except (ValueError, TypeError, AttributeError, csv.Error) as error:
        raise InputError(f"{path} is damaged: {error}") from None

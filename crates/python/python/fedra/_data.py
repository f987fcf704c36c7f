"""What a program hands over as its data, as the parts that the native half reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from .errors import DataError

SPLITS = ("train", "validation", "test")


class Part(TypedDict):
    """Rows with what messages call them, and perhaps a split or a client."""

    name: str
    split: str | None
    client: str | None
    rows: Any


def parts_of(data: Any) -> list[Part] | None:
    """The parts of some data: one for a table, several for a mapping of tables by split or by client."""
    if data is None:
        return None
    if isinstance(data, Mapping) and not _is_column_dict(data):
        if not data:
            raise DataError("data: found an empty dict, expected tables by split or by client")
        by_split = all(name in SPLITS for name in data)
        return [
            {
                "name": f"data[{name!r}]",
                "split": name if by_split else None,
                "client": None if by_split else str(name),
                "rows": rows_of(table, f"data[{name!r}]"),
            }
            for name, table in data.items()
        ]
    return [{"name": "data", "split": None, "client": None, "rows": rows_of(data, "data")}]


def rows_of(table: Any, name: str = "data") -> Any:
    """A table as something that has Arrow's stream interface or whose items are dicts."""
    kind = type(table)
    home = kind.__module__.split(".")[0]
    if home == "datasets":
        return _of_dataset(table)
    if home == "pandas":
        return _of_pandas(table)
    if hasattr(table, "collect") and home == "polars":
        table = table.collect()
    if hasattr(table, "__arrow_c_stream__"):
        return table
    if hasattr(table, "__arrow_c_array__"):
        import pyarrow

        return pyarrow.Table.from_batches([pyarrow.record_batch(table)])
    if isinstance(table, Mapping):
        return _of_columns(table, name)
    if isinstance(table, Iterable) and not isinstance(table, (str, bytes)):
        return table
    raise DataError(
        f"{name}: found a {kind.__name__}, expected a table of pandas, Polars or Arrow, a dataset, or a list of dicts"
    )


def _is_column_dict(data: Mapping[Any, Any]) -> bool:
    """Whether a mapping is a table by columns: lists of plain values, all of one length."""
    if type(data).__module__.split(".")[0] == "datasets" or all(name in SPLITS for name in data):
        return False
    values = list(data.values())
    if not values or not all(isinstance(value, (list, tuple)) for value in values):
        return False
    return not any(isinstance(item, Mapping) for value in values for item in value[:1])


def _of_columns(columns: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{name}: found columns of {lengths} values, expected as many in each")
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def _of_pandas(frame: Any) -> Any:
    try:
        import pyarrow  # noqa: F401  (pandas hands over Arrow's interface only where it is installed)
    except ImportError:
        records = frame.to_dict("records")
        return [{key: _present(value) for key, value in record.items()} for record in records]
    return frame


def _present(value: Any) -> Any:
    """What pandas writes for a value that is missing, as None."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def _of_dataset(dataset: Any) -> Any:
    """A dataset of Hugging Face, with the names of its classes; what was selected or shuffled is as it is there."""
    import pyarrow

    if not hasattr(dataset, "features") or not hasattr(dataset, "with_format"):
        raise DataError(f"data: found a {type(dataset).__name__}, expected a Dataset or a DatasetDict")
    metadata = dataset.features.arrow_schema.metadata
    tables = dataset.with_format("arrow").iter(batch_size=1000)
    first = next(iter(tables), None)
    if first is None:
        return []
    schema = first.schema.with_metadata(metadata)

    def batches():
        for table in dataset.with_format("arrow").iter(batch_size=1000):
            yield from table.replace_schema_metadata(metadata).to_batches()

    return pyarrow.RecordBatchReader.from_batches(schema, batches())

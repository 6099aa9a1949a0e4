"""Decides how records become Parquet where pyarrow is installed: the columns of the CSV as they are, zstd, flat memory.

pyarrow is an extra of the package (`kv-console[parquet]`) and is loaded only here.
"""

import importlib.util
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from audit.contents import content_of
from audit.export.records import Record
from audit.selectors import NAMES, OUTCOMES, flags_of


def available() -> bool:
    """Whether this console can make Parquet."""
    return importlib.util.find_spec("pyarrow") is not None


def write(path: Path, slices: Iterable[Sequence[Record]]) -> int:
    """The file holds the records, one row group a slice; how many they are.

    Args:
        path: of the new file.
        slices: the records, some thousands at a time.
    """
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    import pyarrow.parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]

    schema, rows = _schema(pyarrow), 0
    options = {"compression": "zstd", "compression_level": 3, "use_dictionary": False, "version": "2.6"}
    with pyarrow.parquet.ParquetWriter(path, schema, **options) as writer:
        for records in slices:
            columns = list(zip(*map(_row, records), strict=True))
            table = pyarrow.Table.from_arrays(
                [pyarrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)],
                schema=schema,
            )
            writer.write_table(table)
            rows += len(records)
    return rows


def _schema(pyarrow: Any) -> Any:
    text, number, small = pyarrow.string(), pyarrow.int64(), pyarrow.int32()
    fields = (
        *(("index", number), ("time", pyarrow.timestamp("us", tz="UTC")), ("event_id", text), ("action", text)),
        *(("type", small), ("outcome", text), ("flags", text), ("tenant_ref", pyarrow.binary(16))),
        *(("actor_ref", pyarrow.binary(16)), ("actor_kind", text), ("actor_roles", text), ("object_kind", text)),
        *(("object_id", text), ("request_id", text), ("data", text), ("producer_id", small)),
        *(("producer_seq", number), ("leaf_hash", pyarrow.binary(32))),
    )
    return pyarrow.schema(fields)


def _row(record: Record) -> tuple[Any, ...]:
    said = content_of(record.body)
    data = said.data if record.body else None
    return (
        record.index,
        record.time_us,
        str(record.event_id),
        NAMES.get(record.event_type, ""),
        record.event_type,
        OUTCOMES[record.outcome],
        " ".join(flags_of(record.flags, said)),
        record.tenant_ref,
        record.actor_ref,
        said.actor.kind,
        " ".join(said.actor.roles),
        record.object_kind,
        record.object_id,
        record.request_id,
        None if data is None else json.dumps(data, ensure_ascii=False, separators=(",", ":")),
        record.producer_id,
        record.producer_seq,
        record.hash,
    )

#!/usr/bin/env python3
"""Writes the small Parquet files that crates/data/tests/data/parquet.rs reads.

    python tools/parquet_fixtures.py            (needs pyarrow, pandas and polars; see requirements.txt)

Every file holds the same 40 rows (two row groups of 25 and 15 where the writer allows it), so that one test reads
them all: other encodings, compressions, page versions and shapes of lists, never other contents.
"""
import pathlib
import struct
import zlib

import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

OUT = pathlib.Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures/parquet"
ROWS = 40


def rows():
    """Texts with common beginnings, an absent client now and then, empty, absent and long lists of labels."""
    words = ["cough", "fever", "naïve pain", "\u4f60\u597d"]
    return {
        "text": [f"note {i // 3} of {words[i % 4]}" for i in range(ROWS)],
        "kind": [i * i % 7 - 3 for i in range(ROWS)],
        "client": [None if i % 5 == 4 else f"site-{i % 3}" for i in range(ROWS)],
        "labels": [None if i % 6 == 5 else [f"c{k}" for k in range(i % 4)] for i in range(ROWS)],
        "flag": [i % 3 == 0 for i in range(ROWS)],
        "wide": [2**63 + i if i % 2 else i for i in range(ROWS)],
        "share": [i / 4 for i in range(ROWS)],
        "half": [i / 2 for i in range(ROWS)],
        "day": list(range(ROWS)),
        "pair": [{"a": i, "b": "x"} for i in range(ROWS)],
    }


SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        ("kind", pa.int32()),
        ("client", pa.string()),
        ("labels", pa.list_(pa.string())),
        ("flag", pa.bool_()),
        ("wide", pa.uint64()),
        ("share", pa.float64()),
        ("half", pa.float32()),
        ("day", pa.date32()),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)
ALL, TYPES, NAMES = SCHEMA.names, SCHEMA.names[:8], SCHEMA.names[:4]


def arrow(name, table, columns, **options):
    # Each column costs a few hundred bytes, so a file has only those that it is there for.
    options = {"row_group_size": 25, "write_statistics": False, "store_schema": False, **options}
    pq.write_table(table.select(columns), OUT / f"{name}.parquet", **options)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    table = pa.table(rows(), schema=SCHEMA)
    arrow("plain", table, ALL, compression="none", use_dictionary=False)
    arrow("snappy", table, NAMES, compression="snappy")
    arrow("gzip_v2", table, NAMES, compression="gzip", data_page_version="2.0")
    arrow("zstd", table, TYPES, compression="zstd")
    arrow("brotli", table, ["text", "kind"], compression="brotli")
    arrow("small_pages", table, NAMES, compression="none", data_page_size=64, write_batch_size=4)
    deltas = {
        "text": "DELTA_BYTE_ARRAY",
        "kind": "DELTA_BINARY_PACKED",
        "client": "DELTA_LENGTH_BYTE_ARRAY",
        "labels.list.element": "DELTA_BYTE_ARRAY",
        "flag": "RLE",
        "wide": "DELTA_BINARY_PACKED",
    }
    both = {"compression": "none", "use_dictionary": False, "column_encoding": deltas}
    arrow("delta", table, TYPES[:6], **both)
    arrow("delta_v2", table, TYPES[:6], data_page_version="2.0", **{**both, "compression": "snappy"})
    flat = {name: rows()[name] for name in NAMES}
    pandas.DataFrame(flat).to_parquet(OUT / "pandas.parquet")
    polars.DataFrame(flat).write_parquet(OUT / "polars.parquet", row_group_size=25)
    legacy(table)
    images()
    for path in sorted(OUT.glob("*.parquet")):
        read = pq.read_table(path).to_pydict()
        for column, values in rows().items():
            assert read.get(column, values) == values or column == "day", (path, column)
        print(path.name, path.stat().st_size)


def images():
    """Encoded images as Hugging Face datasets write them, and as plain bytes: beside the other fixtures."""

    def chunk(kind, data):
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    def png(shade, width=4, height=3):
        header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
        pixels = zlib.compress((b"\0" + bytes([shade]) * width) * height)
        parts = [chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(parts)

    files = [png(shade) for shade in [10, 20, 30]]
    struct_type = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": file, "path": None if n == 1 else f"{n}.png"} for n, file in enumerate(files)]
    table = pa.table(
        {
            "image": pa.array(rows, struct_type),
            "label": pa.array([0, 1, 0], pa.int64()),
            "plain": pa.array(files, pa.binary()),
        }
    )
    pq.write_table(table, OUT.parent / "images.parquet", row_group_size=2)


def legacy(table):
    """The two older shapes of a list, made from one with required elements: the levels are the same, only the
    schema in the footer differs. (No current writer makes them; Hive and Avro did.)"""
    element = pa.field("element", pa.string(), nullable=False)
    labels = table["labels"].cast(pa.list_(element))
    small = pa.table(
        {"text": table["text"], "labels": labels},
        schema=pa.schema([SCHEMA.field("text"), pa.field("labels", pa.list_(element))]),
    )
    path = OUT / "two_level.parquet"
    pq.write_table(small, path, compression="none", write_statistics=False, store_schema=False)
    data = path.read_bytes()
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], data[-8 - size : -8]
    tree, _ = structure(footer, 0)
    schema = dict((field, value) for field, _, value in tree)[2][1]
    at = next(i for i, node in enumerate(schema) if name(node) == b"list")
    leaf = schema[at + 1]
    # optional group labels (LIST) { repeated binary array (UTF8) }
    schema[at : at + 2] = [[(f, k, {3: 2, 4: b"array"}.get(f, v)) for f, k, v in leaf]]
    footer = encode(tree)
    path.write_bytes(body + footer + len(footer).to_bytes(4, "little") + b"PAR1")


# The compact protocol of Thrift: a structure is a list of (field, kind, value).
def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def structure(data, at):
    fields, field = [], 0
    while data[at]:
        head, at = data[at], at + 1
        if head >> 4:
            field += head >> 4
        else:
            step, at = varint(data, at)
            field = step >> 1 ^ -(step & 1)
        value, at = value_of(head & 15, data, at)
        fields.append((field, head & 15, value))
    return fields, at + 1


def value_of(kind, data, at):
    if kind in (1, 2):
        return None, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        number, at = varint(data, at)
        return number >> 1 ^ -(number & 1), at
    if kind == 8:
        length, at = varint(data, at)
        return data[at : at + length], at + length
    if kind == 9:
        head, at = data[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = varint(data, at)
        items = []
        for _ in range(count):
            item, at = value_of(head & 15, data, at)
            items.append(item)
        return [head & 15, items], at
    assert kind == 12, kind
    return structure(data, at)


def encode(fields):
    out, last = b"", 0
    for field, kind, value in fields:
        out += bytes([(field - last) << 4 | kind]) + encode_value(kind, value)
        last = field
    return out + b"\0"


def number(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def encode_value(kind, value):
    if kind in (1, 2):
        return b""
    if kind == 3:
        return bytes([value])
    if kind in (4, 5, 6):
        return number(value << 1 ^ value >> 63)
    if kind == 8:
        return number(len(value)) + value
    if kind == 9:
        inner, items = value
        head = bytes([len(items) << 4 | inner]) if len(items) < 15 else bytes([240 | inner]) + number(len(items))
        return head + b"".join(encode_value(inner, item) for item in items)
    return encode(value)


def name(node):
    return dict((field, value) for field, _, value in node)[4]


if __name__ == "__main__":
    main()

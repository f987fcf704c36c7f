"""Images in memory, whatever holds them."""

import io
import struct
import zlib

import fedra
import pytest
from conftest import weights

pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))

SIDE = 8
TABLES = {
    "name": "bars",
    "data": {
        "task": "classes",
        "columns": {"image": "picture", "label": "bar", "client": "site"},
        "shares": {"central": 0.25},
    },
    "model": {"preset": "vit-tiny", "image_size": SIDE, "patch": 4},
    "federation": {"rounds": 1},
    "work": {"batch": 4},
}


def png(pixels: list[list[int]]) -> bytes:
    """A grey image as the bytes of a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(pixels[0]), len(pixels), 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(line) for line in pixels)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def some_images(count: int = 24) -> list[dict]:
    """Bars that stand or lie."""
    rows = []
    for place in range(count):
        bar = [[255 if column == place % SIDE else 10 for column in range(SIDE)] for _ in range(SIDE)]
        stands = place % 3 != 0
        pixels = bar if stands else [list(line) for line in zip(*bar)]
        rows.append({"picture": png(pixels), "bar": "stands" if stands else "lies", "site": "ab"[place % 2]})
    return rows


def of_pillow(rows):
    image = pytest.importorskip("PIL.Image")
    return [row | {"picture": image.open(io.BytesIO(row["picture"]))} for row in rows]


def of_datasets(rows):
    pytest.importorskip("PIL")
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_list(rows).cast_column("picture", datasets.Image())


HOLDERS = {
    "dicts": lambda rows: rows,
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "pyarrow": pyarrow.Table.from_pylist,
    "a dataset of images": of_datasets,
}


@pytest.fixture(scope="module")
def of_file(tmp_path_factory):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path_factory.mktemp("images") / "bars.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(some_images()), file)
    return weights(fedra.run(fedra.Experiment(TABLES, data={"source": "parquet", "path": file}), progress=False))


@pytest.mark.parametrize("holder", HOLDERS)
def test_images_give_the_bits_of_the_same_images_in_a_file(holder, of_file):
    assert weights(fedra.run(TABLES, HOLDERS[holder](some_images()), progress=False)) == of_file


def test_images_of_pillow_are_those_that_it_writes_as_png():
    """Where a row goes follows from its bytes, and Pillow writes other bytes of the same image."""

    def written(image):
        buffer = io.BytesIO()
        image.save(buffer, "PNG")
        return buffer.getvalue()

    images = of_pillow(some_images())
    files = [row | {"picture": written(row["picture"])} for row in images]
    ours, theirs = (fedra.run(TABLES, rows, progress=False) for rows in (images, files))
    assert weights(ours) == weights(theirs)


def test_images_are_labelled(tmp_path):
    rows = some_images()
    run = fedra.run(TABLES, rows, progress=False)
    file = tmp_path / "one.png"
    file.write_bytes(rows[0]["picture"])
    of_bytes, of_path = run.model.predict([rows[0]["picture"], str(file)])
    assert of_bytes == of_path and of_bytes["predicted"] in run.model.labels == ["lies", "stands"]
    with pytest.raises(fedra.ConfigError, match="data: found .* in place 0"):
        run.model.predict([b"no image"])

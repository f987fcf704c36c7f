"""Rows in memory, whatever holds them, are the rows of a file."""

import json

import fedra
import pytest
from conftest import some_rows, weights

pandas, polars, pyarrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))


def dictionary(rows):
    """A table whose labels are stored once, as categories."""
    return pyarrow.table(
        {
            "note": [row["note"] for row in rows],
            "ward": pyarrow.array([row["ward"] for row in rows]).dictionary_encode(),
            "hospital": [row["hospital"] for row in rows],
        }
    )


def in_batches(rows):
    """A stream that is read once, some rows at a time."""
    table = pyarrow.Table.from_pylist(rows)
    return pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))


HOLDERS = {
    "pandas": lambda rows: pandas.DataFrame(rows),
    "categories of pandas": lambda rows: pandas.DataFrame(rows).astype({"ward": "category"}),
    "polars": lambda rows: polars.DataFrame(rows),
    "lazy polars": lambda rows: polars.DataFrame(rows).lazy(),
    "categories of polars": lambda rows: polars.DataFrame(rows).cast({"ward": polars.Categorical}),
    "pyarrow": pyarrow.Table.from_pylist,
    "dictionary": dictionary,
    "stream": in_batches,
    "columns": lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
    "generator": lambda rows: (row for row in rows),
}


@pytest.fixture(scope="module")
def of_file(tmp_path_factory):
    """The weights of a run over the same rows in a file."""
    from conftest import TABLES

    file = tmp_path_factory.mktemp("rows") / "notes.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in some_rows()))
    return weights(fedra.run(fedra.Experiment(TABLES, data={"source": "jsonl", "path": file}), progress=False))


@pytest.mark.parametrize("holder", HOLDERS)
def test_rows_give_the_bits_of_the_same_rows_in_a_file(holder, experiment, rows, of_file):
    assert weights(fedra.run(experiment, HOLDERS[holder](rows), progress=False)) == of_file


def test_a_list_of_dicts_gives_the_bits_of_the_same_rows_in_a_file(experiment, rows, of_file):
    assert weights(fedra.run(experiment, rows, progress=False)) == of_file


def test_a_dict_of_tables_is_by_client_or_by_split(experiment, rows):
    by_client = {
        name: pandas.DataFrame([row for row in rows if row["hospital"] == name]).drop(columns="hospital")
        for name in ("north", "south")
    }
    usual = experiment.replace(data={"columns": {"text": "note", "label": "ward"}})
    assert fedra.run(usual, by_client, progress=False).summary["clients"] == 2
    by_split = {"train": rows[:24], "test": polars.DataFrame(rows[24:])}
    run = fedra.run(experiment, by_split, progress=False)
    assert run.summary["examples"] == 24


def test_numbers_lists_and_missing_values_are_read(tables):
    frame = pyarrow.table(
        {
            "words": [["no", "pain"], ["a", "rash"], None, ["chest", "pain"]] * 6,
            "tags": [[0, 1], [0, 1], [0], [0, 1]] * 6,
            "ward": [1, 2, 3, 1] * 6,
        }
    )
    tables["data"] = {
        "task": "tokens",
        "columns": {"text": "words", "label": "tags", "client": "ward"},
        "shares": {"central": 0.25, "validation": 0.0, "test": 0.0},
    }
    with pytest.raises(fedra.DataError, match="data:3: found no value, expected column \"words\""):
        fedra.run(tables, frame)
    run = fedra.run(fedra.Experiment(tables, data={"missing": "drop"}), frame, progress=False)
    assert run.summary["clients"] == 2


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ([{"note": "x"}], 'data:1: found the columns "note", expected column "ward"'),
        ([{"note": "x", "ward": {"a": 1}, "hospital": "n"}], "data:1: found a dict in \"ward\""),
        ([{"note": "x", "ward": float("nan"), "hospital": "n"}], "data:1: found NaN in \"ward\""),
        (["x"], "data: found a str in place 0, expected a dict of columns"),
        ([], "data: found no rows"),
        ({}, "data: found an empty dict"),
        ({"train": [], "test": []}, "data\\['train'\\]: found no rows"),
        ("notes.csv", "data: found a str, expected a table"),
        ({"note": ["x"], "ward": []}, "data: found columns of"),
    ],
)
def test_what_is_wrong_with_data_is_said_by_its_place(experiment, data, told):
    with pytest.raises(fedra.Error, match=told):
        fedra.run(experiment, data)


def test_an_exception_of_whoever_makes_the_rows_is_the_callers(experiment, rows):
    def broken():
        yield rows[0]
        raise OSError("the database is gone")

    with pytest.raises(OSError, match="the database is gone"):
        fedra.run(experiment, broken())


def test_a_dataset_of_hugging_face_has_the_names_of_its_classes(tables, rows):
    datasets = pytest.importorskip("datasets")
    names = ["heart", "lung", "skin"]
    features = datasets.Features(
        {"note": datasets.Value("string"), "ward": datasets.ClassLabel(names=names), "hospital": datasets.Value("string")}
    )
    dataset = datasets.Dataset.from_list(rows, features=features)
    run = fedra.run(tables, dataset, progress=False)
    assert run.model.labels == names
    # What was selected is what is learnt.
    part = fedra.run(tables, dataset.select(range(0, 36, 2)), progress=False)
    assert part.summary["examples"] < run.summary["examples"]
    both = datasets.DatasetDict(train=dataset.select(range(24)), test=dataset.select(range(24, 36)))
    assert fedra.run(tables, both, progress=False).summary["examples"] == 24

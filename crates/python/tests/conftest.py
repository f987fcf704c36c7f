"""Small federations for all tests."""

import os
import shutil
from pathlib import Path

import fedra
import pytest

#: Tables of an experiment over rows in memory.
TABLES = {
    "name": "wards",
    "seed": 4,
    "data": {
        "task": "classes",
        "columns": {"text": "note", "label": "ward", "client": "hospital"},
        "shares": {"central": 0.25, "validation": 0.0, "test": 0.0},
        "max_tokens": 16,
    },
    "model": {"preset": "tiny-encoder", "blocks": 1, "width": 16, "heads": 2},
    "federation": {"rounds": 3},
    "work": {"batch": 4},
}


def some_rows(count: int = 36) -> list[dict]:
    parts = [("chest pain", "heart"), ("short breath", "lung"), ("a rash", "skin")]
    return [
        {
            "note": f"{parts[place % 3][0]} for {place} days",
            "ward": parts[place % 3][1],
            "hospital": ["north", "south"][place // 3 % 2],
        }
        for place in range(count)
    ]


@pytest.fixture
def tables() -> dict:
    return {key: dict(value) if isinstance(value, dict) else value for key, value in TABLES.items()}


@pytest.fixture
def rows() -> list[dict]:
    return some_rows()


@pytest.fixture
def experiment(tables) -> fedra.Experiment:
    return fedra.Experiment(tables)


@pytest.fixture(scope="session")
def trained() -> fedra.Run:
    """A run that no test changes."""
    tables = {**TABLES, "work": {"batch": 4, "epochs": 4}}
    return fedra.run(tables, some_rows(72), progress=False)


@pytest.fixture
def command() -> str:
    """The command `fedra` of the same source."""
    found = os.environ.get("FEDRA_COMMAND") or shutil.which("fedra")
    if not found:
        pytest.skip("FEDRA_COMMAND names no `fedra`")
    return found


def weights(run: fedra.Run) -> bytes:
    """The bytes of a run's model."""
    return (run.folder / "model/model.safetensors").read_bytes()


@pytest.fixture
def repository() -> Path:
    return Path(__file__).resolve().parents[3]

"""Checks that the logs of a run for other programs say what its rounds.jsonl says.

    python tools/round_files.py runs/NAME

The run's experiment has `log = ["tensorboard", "csv", "parquet"]`. Needs tensorboard, pandas and pyarrow.
"""

import json
import math
import sys
from pathlib import Path

import pandas
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def numbers(report):
    """The columns of one report that are computed here once more, in another way."""
    row = {name: report[name] for name in ["round", "changed", "effort", "seconds", "slowest"]}
    row["loss"] = report["loss"]
    for name in ["cohort", "arrived", "failed", "refused", "blocks"]:
        row[name] = len(report[name])
    row["failed_attempts"] = len(report.get("failed_attempts", []))
    for name in ["up", "down", "full_up", "full_down", "evaluation"]:
        row[f"bytes.{name}"] = report["bytes"][name]
    for name, value in report["bytes"].get("crossing", {}).items():
        row[name if name == "exchanges" else f"bytes.{name}"] = value
    for side, value in report.get("memory", {}).items():
        row[f"memory.{side}"] = value
    if "privacy" in report:
        epsilon = report["privacy"]["epsilon"]
        row["epsilon"] = math.inf if epsilon is None else epsilon
    for scored in report["scores"]:
        row[f"{scored['on']}.loss"] = scored["loss"]
        for name, value in scored["mean"].items():
            row[f"{scored['on']}.{name}"] = value
        for name, value in scored.get("pooled", {}).items():
            row[f"{scored['on']}.pooled_{name}"] = value
    return {name: value for name, value in row.items() if value is not None}


def check_table(table, expected, file):
    names = sorted(set().union(*expected))
    assert sorted(table.columns) == names, (file, sorted(table.columns), names)
    assert len(table) == len(expected), (file, len(table))
    for place, row in enumerate(expected):
        for name in names:
            found = table[name][place]
            if name not in row:
                assert pandas.isna(found), (file, place, name, found)
            else:
                assert float(found) == float(row[name]), (file, place, name, found, row[name])


def check_events(folder, expected):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    names = {name.replace(".", "/") for row in expected for name in row if name != "round"}
    assert set(events.Tags()["scalars"]) == names, (events.Tags()["scalars"], names)
    for name in sorted(names):
        found = [(event.step, event.value) for event in events.Scalars(name)]
        column = name.replace("/", ".")
        wanted = [(row["round"] + 1, row[column]) for row in expected if column in row]
        assert [step for step, _ in found] == [step for step, _ in wanted], (name, found)
        for (_, value), (step, exact) in zip(found, wanted):
            close = value == exact or math.isclose(value, exact, rel_tol=1e-6, abs_tol=1e-30)
            assert close, (name, step, value, exact)


def main():
    folder = Path(sys.argv[1])
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    expected = [numbers(json.loads(line)) for line in lines]
    check_table(pandas.read_csv(folder / "rounds.csv"), expected, "rounds.csv")
    check_table(pandas.read_parquet(folder / "rounds.parquet"), expected, "rounds.parquet")
    check_events(folder / "tensorboard", expected)
    columns = len(set().union(*expected))
    print(f"{len(expected)} rounds, {columns} columns: the same in all files")


if __name__ == "__main__":
    main()

"""Runs: their folders, their bits, their ends."""

import json
import os
import signal
import subprocess
import sys
import threading

import fedra
import pytest
from conftest import weights


def test_the_command_and_the_package_give_the_same_bits(command, repository, tmp_path):
    text = (repository / "crates/fedra/tests/tiny.toml").read_text()
    file = tmp_path / "tiny.toml"
    file.write_text(text)
    done = subprocess.run([command, "run", file, "--out", tmp_path / "a", "--quiet"], capture_output=True)
    assert done.returncode == 0, done.stderr
    ours, theirs = fedra.run(file, folder=tmp_path / "b", progress=False), fedra.Run(tmp_path / "a")
    assert weights(ours) == weights(theirs)
    assert ours.folder.joinpath("experiment.toml").read_bytes() == theirs.folder.joinpath("experiment.toml").read_bytes()
    same = ("score", "scores", "bytes", "multiply_adds", "inputs")
    assert {key: ours.summary[key] for key in same} == {key: theirs.summary[key] for key in same}


def test_a_run_without_a_folder_is_whole_and_goes_with_its_object(experiment, rows, tmp_path):
    run = fedra.run(experiment, rows, progress=False)
    folder = run.folder
    assert run.complete and run.score is not None and len(run.rounds) == 3
    assert run.rounds == [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    kept = run.keep(tmp_path / "kept")
    assert not folder.exists() and kept.model.labels == ["heart", "lung", "skin"]
    other = fedra.run(experiment, rows, progress=False)
    folder = other.folder
    del other
    assert not folder.exists()


def test_a_folder_is_refused_resumed_or_replaced(experiment, rows, tmp_path):
    folder = tmp_path / "run"
    first = fedra.run(experiment, rows, folder=folder, progress=False)
    with pytest.raises(fedra.FolderOccupied, match="overwrite=True replaces it") as refused:
        fedra.run(experiment, rows, folder=folder)
    assert isinstance(refused.value, FileExistsError) and str(refused.value.folder) == str(folder)
    again = fedra.run(experiment, rows, folder=folder, resume=True, progress=False)
    assert weights(again) == weights(first)
    other = fedra.run(experiment.replace(seed=5), rows, folder=folder, overwrite=True, progress=False)
    assert other.summary["seed"] == 5
    with pytest.raises(fedra.Error, match="another experiment"):
        fedra.run(experiment, rows, folder=folder, resume=True)
    with pytest.raises(fedra.Error, match="exclude each other"):
        fedra.run(experiment, rows, folder=folder, resume=True, overwrite=True)


def test_nothing_is_written_to_stdout_or_stderr_unasked(experiment, rows, capfd):
    fedra.run(experiment, rows)
    fedra.plan(experiment, rows)
    assert capfd.readouterr() == ("", "")
    fedra.run(experiment, rows, progress=True)
    told = capfd.readouterr()
    assert told.err == ""
    assert sum(line.startswith("round ") for line in told.out.splitlines()) == 3


def test_progress_of_ones_own_hears_rounds_and_steps(experiment, rows):
    said, shown, ended = [], [], []

    class Mine:
        def say(self, line):
            said.append(line)

        def show(self, line, share):
            shown.append(share)

        def end(self):
            ended.append(True)

    fedra.run(experiment, rows, progress=Mine())
    assert sum("round" in line for line in said) == 3 and ended == [True]
    assert all(share is None or 0 <= share <= 1 for share in shown) and shown[-1] == 1


def test_notes_are_kept_and_logged(experiment, rows, caplog):
    with caplog.at_level("INFO", logger="fedra"):
        run = fedra.run(experiment.replace(data={"sample": 0.9}), rows, progress=False)
    logged = [record.getMessage() for record in caplog.records]
    assert sum(line.startswith("round") for line in logged) == 3
    assert set(run.notes + run.warnings) <= set(logged)


INTERRUPTED = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
import fedra
from conftest import TABLES, some_rows

class Presses:
    '''Presses Ctrl-C while steps of the second round are on.'''
    rounds = 0
    def say(self, line):
        self.rounds += line.startswith("round")
    def show(self, line, share):
        if self.rounds == 1 and "training" in line:
            self.rounds = 99
            os.kill(os.getpid(), signal.SIGINT)
    def end(self):
        pass

tables = {**TABLES, "federation": {"rounds": 3}, "work": {"batch": 1, "epochs": 60}}
try:
    fedra.run(tables, some_rows(), folder=sys.argv[2], progress=Presses())
except KeyboardInterrupt as error:
    assert isinstance(error, fedra.Interrupted), error
    print(json.dumps({"rounds": len(error.run.rounds), "complete": error.run.complete, "told": str(error)}))
    if sys.argv[3] == "resume":
        error.run.resume(progress=False)
"""


def test_ctrl_c_stops_between_two_steps_and_the_run_goes_on_to_the_same_bytes(tmp_path):
    from conftest import TABLES, some_rows

    tests = os.path.dirname(__file__)

    def run(folder, after):
        script = [sys.executable, "-c", INTERRUPTED, tests, str(folder), after]
        done = subprocess.run(script, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return json.loads(done.stdout)

    told = run(tmp_path / "a", "resume")
    assert told["rounds"] == 1 and not told["complete"] and "stopped after 1 round" in told["told"]
    run(tmp_path / "b", "stop")
    tables = {**TABLES, "federation": {"rounds": 3}, "work": {"batch": 1, "epochs": 60}}
    later = fedra.run(tables, some_rows(), folder=tmp_path / "b", resume=True, progress=False)
    whole = fedra.run(tables, some_rows(), progress=False)
    assert weights(fedra.Run(tmp_path / "a")) == weights(later) == weights(whole)


def test_a_second_thread_of_the_program_runs_while_a_run_is_on(experiment, rows):
    """Two runs meet behind a round of each: neither could come there if one held the interpreter."""
    meeting = threading.Barrier(2, timeout=300)
    ended = {}

    def run(name):
        ended[name] = fedra.run(experiment, rows, progress=False, callbacks=[lambda round: meeting.wait()])

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weights(ended["a"]) == weights(ended["b"])


def test_python_goes_on_while_steps_are_on(tables, rows):
    """Another thread counts while one round is on, and the round is still on when it has counted."""
    tables["work"] = {"batch": 1, "epochs": 100}
    tables["federation"] = {"rounds": 1}
    begun, counted, order = threading.Event(), threading.Event(), []

    class Watch:
        def say(self, line):
            if line.startswith("round"):
                order.append("round")

        def show(self, line, share):
            if "training" in line:
                begun.set()

        def end(self):
            pass

    def count():
        assert begun.wait(300)
        sum(range(1000))
        order.append("counted")
        counted.set()

    thread = threading.Thread(target=count)
    thread.start()
    fedra.run(tables, rows, progress=Watch())
    thread.join()
    assert order == ["counted", "round"]


def test_a_run_shows_itself(trained):
    page = trained.report()
    assert "<svg" in page.html and "wards" in page.html
    shown = trained._repr_html_()
    assert shown.startswith("<iframe") and 'sandbox=""' in shown
    assert "complete" in repr(trained)
    frame = pytest.importorskip("pandas") and trained.rounds.to_pandas()
    assert list(frame["round"]) == [0, 1, 2] and frame["bytes.up"].dtype == "int64"
    assert "central_test.macro_f1" in frame
    assert "<table>" in trained.rounds._repr_html_()


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(fedra.Error, match="expected the folder of a run"):
        fedra.Run(tmp_path)
    with pytest.raises(fedra.Error, match="found no experiment.toml"):
        fedra.resume(tmp_path)


def test_a_plan_says_what_the_run_sends(experiment, rows):
    plan, run = fedra.plan(experiment, rows), fedra.run(experiment, rows, progress=False)
    assert plan["bytes"] == run.summary["bytes"]
    assert plan["clients"] == 2 and plan.parts[-1]["part"] == "all"
    assert "<table>" in plan._repr_html_() and "bytes up" in repr(plan)

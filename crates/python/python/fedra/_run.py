"""Runs: `fedra.run`, `fedra.resume` and what they return."""

from __future__ import annotations

import html
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _fedra
from ._data import parts_of
from ._experiment import opened
from ._model import Model
from ._start import beginning_with
from .errors import ConfigError, Error, FolderOccupied, Interrupted
from .progress import Follower, Progress

PathLike = str | os.PathLike[str]

#: What the folder of a model in memory is called, behind the name of its run's.
_START = "-start"


class StopRun(Exception):
    """Raised by a callback, ends the run behind this round without an error; `Round.stop` raises it."""


class Round:
    """A round that is complete, as a callback gets it."""

    def __init__(self, run: Run, report: dict[str, Any], rounds: int, model: Any) -> None:
        #: The run.
        self.run = run
        #: Everything that `rounds.jsonl` says of the round.
        self.report = report
        #: Which round it is, from 1.
        self.number = report["round"] + 1
        #: How many there are.
        self.rounds = rounds
        self._model = model
        self._parameters = None

    @property
    def loss(self) -> float | None:
        """The mean loss while clients trained."""
        return self.report.get("loss")

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the round by set and name, as in `"central_test.macro_f1"`; empty where it was not scored."""
        found = {}
        for scored in self.report.get("scores", []):
            found[f"{scored['on']}.loss"] = scored["loss"]
            found.update({f"{scored['on']}.{name}": value for name, value in scored["mean"].items()})
        return found

    @property
    def epsilon(self) -> float | None:
        """What a private run has spent so far."""
        return (self.report.get("privacy") or {}).get("epsilon")

    @property
    def parameters(self) -> _fedra.Parameters:
        """The shared model after the round, as read-only NumPy arrays by name. They stay valid; asking for them copies
        the model once, and not asking costs nothing."""
        if self._parameters is None:
            self._parameters = self._model.parameters()
        if self._parameters is None:
            raise Error("the run has gone on: ask for the parameters of a round while its callback is on")
        return self._parameters

    def stop(self) -> None:
        """Ends the run behind this round. It can be resumed."""
        raise StopRun

    def __repr__(self) -> str:
        return f"<round {self.number} of {self.rounds}>"


class Rounds(list):
    """The complete rounds of a run, each a dict with what `rounds.jsonl` says."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__(_lines(folder / "rounds.jsonl"))

    def columns(self) -> dict[str, list[Any]]:
        """The rounds as columns of numbers, those of `rounds.csv`."""
        return _fedra.round_table(self._folder)

    def to_pandas(self):
        """The rounds as a data frame of pandas, a row each."""
        import pandas

        return pandas.DataFrame(self.columns())

    def to_polars(self):
        """The rounds as a data frame of Polars, a row each."""
        import polars

        return polars.DataFrame(self.columns())

    def _repr_html_(self) -> str:
        columns = self.columns()
        wanted = [name for name in columns if name in ("round", "loss", "epsilon", "seconds") or "test." in name]
        return _table([[_shown(columns[name][row]) for name in wanted] for row in range(len(self))], wanted)


class Report:
    """The page of a run or a comparison. A notebook shows it; `save` writes it, `html` is its text."""

    def __init__(self, text: str) -> None:
        #: The page.
        self.html = text

    def save(self, path: PathLike) -> Path:
        """Writes the page to a file."""
        Path(path).write_text(self.html, encoding="utf-8")
        return Path(path)

    def __repr__(self) -> str:
        return f"<report of {len(self.html)} characters; save(path) writes it>"

    def _repr_html_(self) -> str:
        return framed(self.html, 640)


class Run:
    """A run in its folder: complete, or stopped on its way.

    `fedra.run` and `fedra.resume` return one; `Run(folder)` opens the folder of any earlier run, also one of the command
    `fedra run`. A notebook shows its page: curves, bytes, privacy.
    """

    def __init__(self, folder: PathLike) -> None:
        #: Where its files are (docs: "What a run leaves").
        self.folder = Path(folder)
        if not (self.folder / "experiment.toml").is_file():
            raise Error(f"{self.folder}: found no experiment.toml, expected the folder of a run")
        #: What a person should know, told before and while it ran.
        self.notes: list[str] = []
        #: What went another way than was asked for.
        self.warnings: list[str] = []
        self._with: tuple[Any, Any, Any] | None = None
        self._scratch: tempfile.TemporaryDirectory | None = None

    @property
    def complete(self) -> bool:
        """Whether it has ended by itself."""
        return (self.folder / "summary.json").is_file()

    @property
    def rounds(self) -> Rounds:
        """Its complete rounds: a list of dicts, and `rounds.to_pandas()`."""
        return Rounds(self.folder)

    @property
    def summary(self) -> dict[str, Any]:
        """What the run came to: the keys of `summary.json`."""
        path = self.folder / "summary.json"
        if not path.is_file():
            raise Error(f"{self.state}, and the summary is written when it ends; resume() goes on")
        return json.loads(path.read_text(encoding="utf-8"))

    @property
    def score(self) -> float | None:
        """The number that the task is judged by; None without test examples."""
        score = self.summary["score"]
        return score and score["value"]

    @property
    def model(self) -> Model:
        """The model after the last round."""
        return self._model("model", best=False)

    @property
    def best_model(self) -> Model:
        """The model of the round that did best on validation examples (`evaluate.keep = "best"`)."""
        return self._model("model-best", best=True)

    def _model(self, name: str, best: bool) -> Model:
        path = self.folder / name
        # Over weights in less memory there are adapters alone.
        adapters = path.with_name(name.replace("model", "adapter"))
        if not path.is_dir() and adapters.is_dir():
            return Model(adapters, _files=self)
        if not path.is_dir():
            why = "no best round was tracked" if best else "every client keeps its own model"
            raise Error(f"{path}: found no model, because {why if self.complete else self.state}")
        return Model(path, _files=self)

    def report(self) -> Report:
        """The page of the run, with all it measured; also while it is stopped."""
        return Report(_fedra.report(self.folder))

    def resume(
        self,
        *,
        threads: int | None = None,
        progress: bool | Progress | None = None,
        callbacks: Iterable[Any] = (),
    ) -> Run:
        """Goes on with a run that was stopped, to the same bytes as one that never was. A run over data in memory goes on
        with these data, if this object has them; `fedra.run(..., resume=True)` brings them otherwise."""
        experiment, data, parts = self._with or (None, None, None)
        return _carry_out(self, experiment, data, parts, "resume", threads, progress, callbacks)

    def keep(self, folder: PathLike) -> Run:
        """Moves the files of a run without a folder to one, where they stay."""
        if self._scratch is None:
            raise Error(f"the run is kept already, in {self.folder}")
        target = Path(folder)
        if target.exists() and any(target.iterdir()):
            raise Error(f"{target}: found files, expected a free folder")
        start = _start_of(self.folder, "resume")
        kept = _start_of(target, "new") if start.is_dir() else None
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self.folder, target, dirs_exist_ok=True)
        if kept is not None:
            shutil.copytree(start, kept)
            self._rename_start(target, start, kept)
        self._scratch.cleanup()
        self._scratch, self.folder = None, target
        return self

    def _rename_start(self, folder: Path, start: Path, kept: Path) -> None:
        """Names the model that the run began with where it is now, in all that goes on from it."""
        for file in [folder / "experiment.toml", *folder.glob("*/adapter_config.json")]:
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace(_quoted(start), _quoted(kept)), encoding="utf-8")
        if self._with is not None:
            experiment, *others = self._with
            text = experiment.to_toml().replace(_quoted(start), _quoted(kept))
            self._with = (_fedra.Experiment.from_toml(text), *others)

    @property
    def state(self) -> str:
        """How far it is, in words."""
        done = sum(1 for _ in _lines(self.folder / "rounds.jsonl"))
        rounds = "1 round" if done == 1 else f"{done} rounds"
        return f"the run is complete ({rounds})" if self.complete else f"the run was stopped after {rounds}"

    def __repr__(self) -> str:
        scored = ""
        if self.complete and (score := self.summary["score"]):
            scored = f", {score['name']} {score['value']:.3f} on the {score['on'].replace('_', ' ')}"
        return f"<{self.state}{scored}, in {self.folder}>"

    def _repr_html_(self) -> str:
        if not self.rounds:
            return f"<p>{html.escape(repr(self))}</p>"
        return framed(_fedra.report(self.folder), 560)


def run(
    experiment: _fedra.Experiment | Mapping[str, Any] | PathLike,
    data: Any = None,
    *,
    folder: PathLike | None = None,
    resume: bool = False,
    overwrite: bool = False,
    seed: int | None = None,
    device: str | None = None,
    precision: str | None = None,
    threads: int | None = None,
    progress: bool | Progress | None = None,
    callbacks: Iterable[Any] = (),
    model: Any = None,
    tokenizer: Any = None,
    sampler: Callable[[int, dict[str, int]], Iterable[str]] | None = None,
    selector: Callable[[int, str, list[float], list[int]], Iterable[int]] | None = None,
    server: Callable[[int, dict[str, Any], dict[str, Any]], None] | None = None,
    score: Callable[[Any, Any], float | None] | None = None,
) -> Run:
    """Runs a federation in this process, and returns the `Run`.

    `experiment` is an `Experiment`, or what makes one: the path of a file, the text of one, a dict.

    `data` are rows in memory: a table of pandas, Polars or Arrow, a dataset of Hugging Face, a list of dicts, or a dict
    of such tables by split (`{"train": ..., "test": ...}`) or by client (`{"north": ..., "south": ...}`). They take the
    place of those that `[data]` names; its `columns`, `task`, `partition` and `shares` say what they mean, as for a file.

    `model` is what the run begins with, in the place of `model.path`: a model of `transformers` or `peft` in memory, with
    its `tokenizer`, a folder, or `hf:ORG/NAME`. A model in memory is written beside the folder of the run, to one with
    `-start` behind its name, from which a resumed run begins too; the object stays as it is. Of a model of `peft` the
    active adapters go on learning.

    Without a `folder` the files of the run are temporary and go with the `Run` (`run.keep(folder)` keeps them). A folder
    that holds a run is refused; `resume=True` goes on with that run, or begins one if there is none, and
    `overwrite=True` replaces it.

    `progress` is None (alive in a notebook, lines in a terminal, nothing in a pipe), True (lines), False, or an object
    like `fedra.progress.Progress`. Callbacks are called behind each round with a `Round`: functions, or objects with
    `on_begin(run)`, `on_round(round)` and `on_end(run)`, of which each may be missing; `on_end` is called for a run that
    was stopped, too. An exception in one ends the run, which can be resumed.

    Three choices of the method and what a run is judged by may be functions. Rounds count from 1.

    - `sampler(round, examples)` returns the names of the clients that take part, out of the names in `examples`, which
      has the number of their training examples.
    - `selector(round, client, measured, usual)` returns the client's blocks, best first, for a method that selects blocks
      such as `safl`. `measured` is what was measured of each block, `usual` the method's own order.
    - `server(round, change, state)` changes `change` in place, the mean change by parameter, which is then added to the
      model. `state` has an array of the same shape for each, zeros at the start: what the rule remembers between rounds.
      It is part of every checkpoint, so a resumed run has the same bits. Both have NumPy arrays in the library's memory.
    - `score(truth, probabilities)` returns a number, larger for better, or None (or nan) where there is none. It is called
      for each set that is scored, and for each client of a set at clients. `probabilities` has a row for each example, or
      for each labelled word, and a column for each label, in the order of `run.model.labels`; `truth` has the number of
      the right label of each row, or with the task `diagnosis` a truth value for each row and label. The number is called
      `own_score`; it is the run's score, and decides which round is best.

    An exception in one of them ends the run with the round before. Whoever resumes it brings them again.

    Ctrl-C stops between two steps and raises `fedra.Interrupted`, whose `run` can be resumed. Other threads of the
    program run meanwhile.
    """
    if resume and overwrite:
        raise Error("resume and overwrite exclude each other: one keeps the run in the folder, the other replaces it")
    experiment = opened(experiment, seed=seed, device=device, precision=precision)
    scratch = None
    if folder is None:
        scratch = tempfile.TemporaryDirectory(prefix="fedra-")
        folder = Path(scratch.name) / "run"
    folder = Path(folder)
    mode = "overwrite" if overwrite else "new"
    if resume and (folder / "experiment.toml").is_file():
        mode = "resume"
    if model is not None:
        experiment = beginning_with(experiment, model, tokenizer, _start_of(folder, mode))
    elif tokenizer is not None:
        raise ConfigError("tokenizer: applies only with model=; the key model.tokenizer gives a preset one")
    made = Run.__new__(Run)
    made.folder, made.notes, made.warnings = folder, [], []
    parts = None
    if any(part is not None for part in (sampler, selector, server, score)):
        parts = _fedra.Parts(sampler, selector, server, score)
    made._with, made._scratch = (experiment, data, parts), scratch
    return _carry_out(made, experiment, data, parts, mode, threads, progress, callbacks)


def resume(
    folder: PathLike,
    *,
    threads: int | None = None,
    progress: bool | Progress | None = None,
    callbacks: Iterable[Any] = (),
) -> Run:
    """Goes on with the run in a folder. A complete run is returned as it is. A run over data in memory needs them again:
    `fedra.run(experiment, data, folder=folder, resume=True)`."""
    return Run(folder).resume(threads=threads, progress=progress, callbacks=callbacks)


def _start_of(folder: Path, mode: str) -> Path:
    """The folder for a model in memory, free unless its run is resumed."""
    folder = folder.resolve()
    start = folder.with_name(folder.name + _START)
    if mode == "overwrite" and (folder / "experiment.toml").is_file() and (start / "config.json").is_file():
        shutil.rmtree(start)
    if mode != "resume" and start.exists():
        raise FolderOccupied(f"{start}: found files, expected a free place for the model that the run begins with")
    return start


def _carry_out(
    run: Run,
    experiment: _fedra.Experiment | None,
    data: Any,
    parts: _fedra.Parts | None,
    mode: str,
    threads: int | None,
    progress: bool | Progress | None,
    callbacks: Iterable[Any],
) -> Run:
    callbacks = list(callbacks)

    def on_round(report: dict[str, Any], model: Any, rounds: int) -> None:
        round = Round(run, report, rounds, model)
        for callback in callbacks:
            called = getattr(callback, "on_round", None)
            if called is None and callable(callback):
                called = callback
            if called is not None:
                called(round)

    _each(callbacks, "on_begin", run)
    try:
        return _followed(run, (experiment, data, parts), mode, threads, progress, on_round if callbacks else None)
    finally:
        # Of a run that was stopped too: whoever has opened something closes it.
        _each(callbacks, "on_end", run)


def _followed(
    run: Run,
    given: tuple[_fedra.Experiment | None, Any, _fedra.Parts | None],
    mode: str,
    threads: int | None,
    progress: bool | Progress | None,
    on_round: Callable[..., None] | None,
) -> Run:
    experiment, data, parts = given
    follower = Follower(progress, on_round)
    follower.notes, follower.warnings = run.notes, run.warnings
    try:
        _fedra.run(experiment, parts_of(data), parts, run.folder, mode, threads, follower)
    except StopRun:
        pass
    except KeyboardInterrupt:
        if not (run.folder / "experiment.toml").is_file():
            raise
        raise Interrupted(run) from None
    except Exception as error:
        if (run.folder / "checkpoint.fedra").is_file() and not isinstance(error, Error):
            error.add_note(f"{run.state}; `error.run.resume()` goes on")
            error.run = run  # type: ignore[attr-defined]
        raise
    finally:
        follower.progress.end()
    return run


def _quoted(path: Path) -> str:
    """A path as TOML and JSON have it, without the quotes around it."""
    return json.dumps(str(path), ensure_ascii=False)[1:-1]


def _each(callbacks: list[Any], name: str, *arguments: Any) -> None:
    for callback in callbacks:
        called: Callable[..., Any] | None = getattr(callback, name, None)
        if called is not None:
            called(*arguments)


def _lines(path: Path):
    """The objects of a file in JSON lines; a last line without its end is being written."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.split("\n")[:-1]:
        yield json.loads(line)


def framed(page: str, height: int) -> str:
    """A page inside of a notebook's cell, with nothing of it able to reach out."""
    source = html.escape(page, quote=True)
    return (
        f'<iframe srcdoc="{source}" sandbox="" style="width:100%;height:{height}px;border:1px solid #8884"></iframe>'
    )


def _table(rows: list[list[str]], names: list[str]) -> str:
    cells = ["".join(f"<th>{html.escape(name)}</th>" for name in names)]
    cells += ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

"""What an experiment would train, send and cost. Nothing is trained."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import Any

from . import _fedra
from ._data import parts_of
from ._experiment import opened
from ._start import beginning_with
from .progress import Follower, Progress


class Plan(dict):
    """The numbers of a plan by name; a notebook shows them as tables. `bytes` are exact and what the run will report."""

    @property
    def parts(self) -> list[dict[str, Any]]:
        """What each part of the model holds, learns and sends, stage by stage."""
        return self["parts"]

    def to_pandas(self):
        """The parts of the model as a data frame of pandas."""
        import pandas

        return pandas.DataFrame(self.parts)

    def __repr__(self) -> str:
        width = max(len(name) for name, _ in self._facts())
        return "\n".join(f"{name:{width}}  {value}" for name, value in self._facts())

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th><td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        names = ("part", "parameters", "learn", "travel", "bytes_up", "from_round")
        rows = []
        for part in self.parts:
            cells = [
                part["part"], f"{part['parameters']:,}", f"{part['learn']:,}", f"{part['travel']:,}",
                in_bytes(part["bytes_up"]), str(part["from_round"] + 1),
            ]
            rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
        head = "".join(f"<th>{name.replace('_', ' ')}</th>" for name in names)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self["notes"])
        return f"<table>{facts}</table><table><tr>{head}</tr>{''.join(rows)}</table>{notes}"

    def _facts(self) -> list[tuple[str, str]]:
        def sent(way: str) -> str:
            least, most = sorted((self["bytes"][way], self["bytes_at_most"][way]))
            full = self["bytes"][f"full_{way}"]
            share = f" ({100 * most / full:.0f} % of FedAvg's in f32)" if full else ""
            return (in_bytes(least) if least == most else f"{in_bytes(least)} to {in_bytes(most)}") + share

        privacy = self["privacy"]
        spent = "none"
        if privacy:
            epsilon = privacy["epsilon"]
            spent = f"epsilon {'unbounded' if epsilon is None else f'{epsilon:.3f}'}, noise {privacy['noise']:.4g}"
        return [
            ("experiment", self["name"]),
            ("method", f"{self['method']}, {self['rounds']} rounds"),
            ("clients", f"{self['clients']:,} with {self['examples']:,} training examples"),
            ("parameters", f"{self['parameters']:,}"),
            ("bytes up", sent("up")),
            ("bytes down", sent("down")),
            ("client memory", f"about {in_bytes(self['client_memory'])}"),
            ("server memory", f"about {in_bytes(self['server_memory'])}"),
            ("run memory", f"about {in_bytes(self['run_memory'])} with everybody in one process"),
            ("privacy", spent),
        ]


def plan(
    experiment: Any,
    data: Any = None,
    *,
    seed: int | None = None,
    progress: bool | Progress | None = None,
    model: Any = None,
    tokenizer: Any = None,
) -> Plan:
    """Says what an experiment would train, send and cost, before anything is trained: the numbers of `fedra plan`.

    `experiment`, `data`, `model` and `tokenizer` are those of `fedra.run`; a model in memory is written to a temporary
    folder.
    """
    experiment = opened(experiment, seed=seed)
    follower = Follower(progress)
    with tempfile.TemporaryDirectory(prefix="fedra-") as scratch:
        if model is not None:
            experiment = beginning_with(experiment, model, tokenizer, Path(scratch) / "start")
        try:
            return Plan(_fedra.plan(experiment, parts_of(data), follower))
        finally:
            follower.progress.end()


def in_bytes(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"

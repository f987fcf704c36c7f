"""Several runs for one answer: comparisons over seeds, advice on freezing, audits of a private run."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _fedra
from ._data import parts_of
from ._experiment import opened
from ._run import Report, framed
from .errors import Error
from .progress import Follower, Progress

PathLike = str | os.PathLike[str]


class Comparison(dict):
    """What came of a comparison: the keys of `compare.json`. A notebook shows its page."""

    def __init__(self, found: Mapping[str, Any], folder: Path, scratch: Any) -> None:
        super().__init__(found["comparison"])
        #: The folder with the runs.
        self.folder = folder
        #: Runs that broke down, and why.
        self.failures: list[str] = found["failures"]
        self._scratch = scratch

    def report(self) -> Report:
        """The page of the comparison."""
        return Report(_fedra.report(self.folder))

    def to_pandas(self):
        """The variants as a data frame of pandas, a row each."""
        import pandas

        rows = []
        for line in self["variants"]:
            score, difference = line["score"] or {}, line["difference"] or {}
            rows.append(
                {
                    "variant": line["name"],
                    "method": line["method"],
                    "score": score.get("mean"),
                    "margin": score.get("margin"),
                    "difference": difference.get("mean"),
                    "verdict": line["verdict"],
                    "bytes_up": line["bytes"]["up"],
                    "bytes_down": line["bytes"]["down"],
                    "seconds": line["seconds"],
                    "epsilon": line["epsilon"],
                }
            )
        return pandas.DataFrame(rows)

    def __repr__(self) -> str:
        parts = []
        for line in self["variants"]:
            score = line["score"]
            shown = "no score" if score is None else f"{score['mean']:.3f}"
            if score and score["margin"] is not None:
                shown += f" ± {score['margin']:.3f}"
            verdict = f" ({line['verdict'].replace('_', ' ')})" if line["verdict"] else ""
            parts.append(f"{line['name']}: {shown}{verdict}")
        return f"<comparison over {len(self['seeds'])} seeds: {'; '.join(parts)}>"

    def _repr_html_(self) -> str:
        return framed(_fedra.report(self.folder), 560)


class Advice(dict):
    """What a pilot measured, and what follows from it: the keys of `fedra advise --json`."""

    def __init__(self, found: Mapping[str, Any], text: str) -> None:
        super().__init__(found)
        self._text = text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self._text)}</pre>"


def compare(
    experiments: Any,
    *,
    sweep: Mapping[str, Any] | None = None,
    tune: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    baseline: str | None = None,
    folder: PathLike | None = None,
    progress: bool | Progress | None = None,
) -> Comparison:
    """Runs experiments over several seeds and says which is better, if the difference is significant.

    `experiments` is one experiment or a list of them, as `fedra.run` takes them; their data are in files. `sweep` has
    keys with several values, which are all combined (`{"method.name": ["fedavg", "safl"]}`), and `tune` keys of which
    each variant chooses the value that is best on validation examples. The difference to the `baseline`, the first
    variant unless named, is taken seed by seed. With a `folder`, what is complete there is not run again.
    """
    listed = isinstance(experiments, (list, tuple))
    scratch = tempfile.TemporaryDirectory(prefix="fedra-") if folder is None else None
    place = Path(scratch.name) / "comparison" if scratch is not None else Path(folder or "")
    follower = Follower(progress)
    with tempfile.TemporaryDirectory(prefix="fedra-") as written:
        files = [_file(one, Path(written), at) for at, one in enumerate(experiments if listed else [experiments])]
        try:
            found = _fedra.compare(
                files, dict(sweep or {}), dict(tune or {}), seeds, baseline, place, follower
            )
        finally:
            follower.progress.end()
    return Comparison(found, place, scratch)


def advise(
    experiment: Any,
    data: Any = None,
    *,
    rounds: int | None = None,
    warmups: Iterable[int] = (),
    tolerance: float = 0.01,
    scratch: PathLike | None = None,
    progress: bool | Progress | None = None,
) -> Advice:
    """Proposes after how many rounds FedFrozen should freeze query and key, from a pilot of about four runs. It needs
    validation examples, and writes nothing but a file in `scratch` where client state is large."""
    follower = Follower(progress)
    try:
        found = _fedra.advise(
            opened(experiment), parts_of(data), rounds, list(warmups), tolerance, scratch, follower
        )
    finally:
        follower.progress.end()
    return Advice(*found)


def audit(
    experiment: Any,
    data: Any = None,
    *,
    canaries: int = 1000,
    confidence: float = 0.95,
    progress: bool | Progress | None = None,
) -> dict[str, Any]:
    """Audits the claimed epsilon of a private run with canaries: the keys of `fedra audit --json`. `status` is
    `"broken"` if the proven lower bound is above the claim; `"not_refuted"` proves nothing."""
    follower = Follower(progress)
    try:
        return _fedra.audit(opened(experiment), parts_of(data), canaries, confidence, follower)
    finally:
        follower.progress.end()


def _file(experiment: Any, place: Path, at: int) -> Path:
    """An experiment as a file: its own, or one that says the same."""
    if isinstance(experiment, (str, os.PathLike)) and "\n" not in str(experiment):
        return Path(experiment)
    experiment = opened(experiment)
    folder = place / str(at)
    folder.mkdir()
    if not experiment.name:
        raise Error("name: found none, expected one for every experiment that is compared")
    path = folder / f"{experiment.name}.toml"
    path.write_text(experiment.to_toml(), encoding="utf-8")
    return path

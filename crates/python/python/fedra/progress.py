"""How far a run is: alive in a notebook, lines in a log, nothing where nobody asked.

Fedra writes nothing to stderr. What a person should know goes three ways: to the logger `fedra` of Python's `logging`,
to `run.notes` and `run.warnings`, and, with progress, to where progress is shown.
"""

from __future__ import annotations

import html
import logging
import sys
import time
from typing import Any, Callable, Protocol

__all__ = ["Progress", "Lines", "Notebook", "Silent"]

log = logging.getLogger("fedra")
# Without a handler of the program's own, nothing is written anywhere.
log.addHandler(logging.NullHandler())


class Progress(Protocol):
    """Shows how far work is. Write your own for another place."""

    def say(self, line: str) -> None:
        """A line that stays: a note, a warning, a round."""

    def show(self, line: str, share: float | None) -> None:
        """A line about this moment, and the share of the work that is done; it replaces the one before."""

    def end(self) -> None:
        """The work is over, complete or not."""


class Silent:
    """Shows nothing."""

    def say(self, line: str) -> None:
        pass

    def show(self, line: str, share: float | None) -> None:
        pass

    def end(self) -> None:
        pass


class Lines:
    """Prints a line for each round, and one now and then within a long one."""

    def __init__(self, write: Callable[[str], Any] | None = None, every: float = 60.0) -> None:
        self._write = write or (lambda line: print(line, file=sys.stdout, flush=True))
        self._every, self._said = every, time.monotonic()

    def say(self, line: str) -> None:
        self._said = time.monotonic()
        self._write(line)

    def show(self, line: str, share: float | None) -> None:
        if time.monotonic() - self._said >= self._every:
            self.say(line)

    def end(self) -> None:
        pass


class Notebook:
    """Draws a bar and the last lines in the output of a cell, and leaves what was said when the work is over."""

    LINES, SECONDS = 12, 0.2

    def __init__(self) -> None:
        from IPython.display import HTML, display

        self._html, self._drawn = HTML, 0.0
        self._lines: list[str] = []
        self._now: tuple[str, float | None] | None = ("", None)
        self._handle = display(HTML(""), display_id=True)

    def say(self, line: str) -> None:
        self._lines.append(line)
        self._draw()

    def show(self, line: str, share: float | None) -> None:
        self._now = (line, share)
        if time.monotonic() - self._drawn >= self.SECONDS:
            self._draw()

    def end(self) -> None:
        self._now = None
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        parts = []
        if self._now is not None:
            line, share = self._now
            width = round(100 * min(max(share or 0.0, 0.0), 1.0))
            parts.append(
                '<div style="background:#8884;width:24em;height:.6em;border-radius:.3em">'
                f'<div style="background:#3b7dd8;width:{width}%;height:100%;border-radius:.3em"></div></div>'
                f"<div>{html.escape(line)}</div>"
            )
        shown = self._lines[-self.LINES :]
        if shown:
            more = len(self._lines) - len(shown)
            before = [f"({more} more lines before)"] if more else []
            text = html.escape("\n".join(before + shown))
            parts.append(f'<pre style="margin:.4em 0;white-space:pre-wrap">{text}</pre>')
        if self._handle is not None:
            self._handle.update(self._html("".join(parts)))


def chosen(progress: bool | Progress | None) -> Progress:
    """What `progress` of a call means: None for a notebook's or a terminal's, True for lines, False for nothing."""
    if progress is False:
        return Silent()
    if progress is None or progress is True:
        if _is_notebook():
            return Notebook()
        return Lines() if progress or sys.stdout.isatty() else Silent()
    return progress


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


class Follower:
    """What the native half calls while it works, on the thread that waits for it."""

    def __init__(self, progress: bool | Progress | None, on_round: Callable[..., None] | None = None) -> None:
        self.progress = chosen(progress)
        self.waits = on_round is not None
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._on_round = on_round
        self._label, self._done, self._rounds = "", 0, 0

    def note(self, line: str) -> None:
        line = line.removeprefix("note: ")
        # A warning of a command is one here too, however it is told.
        if line.startswith("warning: "):
            return self.warning(line)
        self.notes.append(line)
        log.info("%s", line)
        self.progress.say(f"note: {line}")

    def warning(self, line: str) -> None:
        line = line.removeprefix("warning: ")
        self.warnings.append(line)
        log.warning("%s", line)
        self.progress.say(f"warning: {line}")

    def preparing(self, stage: str, done: int, total: int) -> None:
        share = done / total if total else None
        self.progress.show(stage if share is None else f"{stage}: {100 * share:.0f} %", share)

    def prepared(self) -> None:
        pass

    def begin(
        self, label: str, title: str | None, done: int, rounds: int, cohort: int, whole_rounds: bool
    ) -> None:
        self._label, self._done, self._rounds = title or label, done, rounds
        self.progress.show(f"{self._label}: round {min(done + 1, rounds)}/{rounds}", done / max(rounds, 1))

    def within(
        self, activity: str, clients_done: int, clients: int, steps_done: int, steps: int, seconds: float
    ) -> None:
        inside = min(steps_done / steps, 1.0) if steps else 0.0
        what = f"{activity}, {clients_done}/{clients} clients"
        if steps:
            unit = "step" if activity == "training" else "example"
            what += f", {unit} {min(steps_done, steps)}/{steps}"
        number = min(self._done + 1, self._rounds)
        share = (self._done + inside) / max(self._rounds, 1)
        self.progress.show(f"{self._label}: round {number}/{self._rounds}: {what}", share)

    def round(self, report: dict[str, Any], line: str) -> None:
        self._done = report["round"] + 1
        log.info("%s", line)
        self.progress.say(line)
        self.progress.show(f"{self._label}: {line}", self._done / max(self._rounds, 1))

    def complete(self, report: dict[str, Any], model: Any) -> None:
        if self._on_round is not None:
            self._on_round(report, model, self._rounds)

    def end(self) -> None:
        pass

    def run(self, what: str, name: str, told: str) -> None:
        """Something happened to one of several runs."""
        if what in ("complete", "failed"):
            level = logging.WARNING if what == "failed" else logging.INFO
            log.log(level, "%s: %s", name, told)
            self.progress.say(f"{name}: {told}" if what == "complete" else f"failed: {name}: {told}")
        elif what != "end":
            self.progress.show(f"{name}: {told}", None)

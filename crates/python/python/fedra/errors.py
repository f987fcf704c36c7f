"""What can go wrong. Every exception of Fedra is an `Error`; messages say what was found and what was expected."""

from __future__ import annotations

import os

__all__ = [
    "Error",
    "ConfigError",
    "DataError",
    "RunError",
    "FolderOccupied",
    "Interrupted",
]


class Error(Exception):
    """Something was refused or failed."""


class ConfigError(Error, ValueError):
    """A key of an experiment, or an argument, cannot be used. `key` names it, as in `"work.batch"`."""

    key: str = ""


class DataError(Error, ValueError):
    """A row cannot be used. The message names it: rows are counted from 1."""


class RunError(Error, RuntimeError):
    """A run that had begun could not go on. Its complete rounds are kept in `folder`."""

    rounds: int = 0
    folder: str | os.PathLike[str] | None = None


class FolderOccupied(Error, FileExistsError):
    """The folder holds another run, and nobody said that it may be replaced."""

    folder: str | os.PathLike[str] = ""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or the stop button of a notebook, ended a run between two steps.

    `run` is what there is of it. `run.resume()` goes on, and ends with the same bytes as a run that nobody stopped.
    """

    def __init__(self, run) -> None:
        self.run = run
        super().__init__(f"{run.state}; run.resume() of this exception goes on")

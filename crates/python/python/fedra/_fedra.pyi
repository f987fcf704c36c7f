"""The native half of the package; `fedra` has everything that is meant to be called."""

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any, Protocol

import numpy

from ._data import Part

__version__: str

class Experiment:
    """What a federation learns, from whom, and how: the keys of an experiment file."""

    def __new__(
        cls, source: str | PathLike[str] | Mapping[str, Any] | Experiment | None = None, /, **keys: Any
    ) -> Experiment: ...
    @staticmethod
    def from_toml(text: str, /, **keys: Any) -> Experiment: ...
    def replace(self, **keys: Any) -> Experiment: ...
    @property
    def name(self) -> str: ...
    @property
    def seed(self) -> int: ...
    def to_toml(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...

class Parameters:
    """A model's parameters by name, as read-only NumPy arrays."""

    def __len__(self) -> int: ...
    def __contains__(self, name: str) -> bool: ...
    def __getitem__(self, name: str) -> numpy.ndarray: ...
    def __iter__(self) -> Iterator[str]: ...
    def keys(self) -> list[str]: ...
    def values(self) -> list[numpy.ndarray]: ...
    def items(self) -> list[tuple[str, numpy.ndarray]]: ...

class ParameterArray:
    """One parameter, as NumPy takes it over."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...

class Parts:
    """Functions in the place of some of a method's choices."""

    def __new__(cls, sampler: Any, selector: Any, server: Any, score: Any) -> Parts: ...

class Predictor:
    """A trained model, opened to label texts."""

    def __new__(
        cls,
        path: str | PathLike[str],
        best: bool = False,
        base: str | PathLike[str] | None = None,
        device: str | None = None,
        precision: str | None = None,
        multi_label: bool = False,
    ) -> Predictor: ...
    @property
    def labels(self) -> list[str]: ...
    @property
    def columns(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def reads_images(self) -> bool: ...
    def predict(self, rows: list[Any], threshold: float, top: int) -> list[dict[str, Any]]: ...

class _Follower(Protocol):
    waits: bool

def run(
    experiment: Experiment | None,
    data: list[Part] | None,
    parts: Parts | None,
    folder: str | PathLike[str],
    mode: str,
    threads: int | None,
    follower: _Follower,
) -> tuple[int, int]: ...
def plan(experiment: Experiment, data: list[Part] | None, follower: _Follower) -> dict[str, Any]: ...
def report(folder: str | PathLike[str]) -> str: ...
def round_table(folder: str | PathLike[str]) -> dict[str, list[Any]]: ...
def evaluate(
    path: str | PathLike[str],
    best: bool,
    base: str | PathLike[str] | None,
    experiment: Experiment | None,
    data: list[Part] | None,
    file: str | PathLike[str] | None,
    columns: dict[str, Any] | None,
    split: str | None,
    device: str | None,
    precision: str | None,
    follower: _Follower,
) -> dict[str, Any]: ...
def generate(
    path: str | PathLike[str],
    best: bool,
    base: str | PathLike[str] | None,
    prompt: str | tuple[str, str | PathLike[str] | None],
    max_tokens: int,
    sampling: tuple[float | None, int | None, float | None, int | None],
    stop: list[str],
    device: str | None,
    precision: str | None,
    heard: Any,
) -> dict[str, Any]: ...
def compare(
    files: list[Any],
    sweep: dict[str, Any],
    tune: dict[str, Any],
    seeds: int | None,
    baseline: str | None,
    folder: str | PathLike[str],
    follower: _Follower,
) -> dict[str, Any]: ...
def advise(
    experiment: Experiment,
    data: list[Part] | None,
    rounds: int | None,
    warmups: list[int],
    tolerance: float,
    scratch: str | PathLike[str] | None,
    follower: _Follower,
) -> tuple[dict[str, Any], str]: ...
def audit(
    experiment: Experiment,
    data: list[Part] | None,
    canaries: int,
    confidence: float,
    follower: _Follower,
) -> dict[str, Any]: ...
def epsilon(
    *,
    q: float,
    sigma: float,
    steps: int,
    delta: float,
    relation: str = "add-remove",
    examples: int | None = None,
    cap: int | None = None,
) -> dict[str, float]: ...
def sigma(
    *,
    epsilon: float,
    q: float,
    steps: int,
    delta: float,
    relation: str = "add-remove",
    examples: int | None = None,
    cap: int | None = None,
) -> dict[str, float]: ...
def steps(
    *,
    epsilon: float,
    q: float,
    sigma: float,
    delta: float,
    relation: str = "add-remove",
    examples: int | None = None,
    cap: int | None = None,
) -> dict[str, float]: ...

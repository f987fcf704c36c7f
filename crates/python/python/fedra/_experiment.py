"""Experiments from whatever stands for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._fedra import Experiment


def opened(experiment: Any, **keys: Any) -> Experiment:
    """An experiment from the path of a file, the text of one, a dict or an `Experiment`, with these keys where they are
    given."""
    given = {key: value for key, value in keys.items() if value is not None}
    if isinstance(experiment, Experiment):
        return experiment.replace(**given) if given else experiment
    if isinstance(experiment, Mapping):
        experiment = dict(experiment)
    return Experiment(experiment, **given)

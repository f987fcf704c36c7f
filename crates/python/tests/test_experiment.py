"""Experiments from files, texts, dicts and keywords, and what is refused about them."""

import fedra
import pytest


def test_text_dict_keywords_and_file_are_the_same_experiment(experiment, tables, tmp_path):
    text = experiment.to_toml()
    file = tmp_path / "wards.toml"
    file.write_text(text)
    others = [
        fedra.Experiment(tables),
        fedra.Experiment(**tables),
        fedra.Experiment(text),
        fedra.Experiment.from_toml(text),
        fedra.Experiment(file),
        fedra.Experiment(str(file)),
        fedra.Experiment(experiment),
        fedra.Experiment(experiment.to_dict()),
    ]
    assert [other.to_toml() for other in others] == [text] * len(others)
    assert all(other == experiment for other in others)


def test_keywords_change_tables_key_by_key_and_methods_as_a_whole(experiment):
    changed = experiment.replace(work={"batch": 8}, method={"name": "fedprox", "mu": 0.1}, seed=9)
    found = changed.to_dict()
    assert (found["work"]["batch"], found["seed"], found["model"]["width"]) == (8, 9, 16)
    assert found["method"] == {"name": "fedprox", "mu": 0.1}
    # Nothing of the method before is left.
    again = changed.replace(method="fedavg").to_dict()
    assert again["method"] == {"name": "fedavg"}
    deep = experiment.replace(**{"work.optimiser": {"name": "sgd", "rate": 0.5}})
    assert deep.to_dict()["work"]["optimiser"]["rate"] == 0.5
    assert experiment.to_dict()["work"]["batch"] == 4


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"federation": {"ronuds": 3}}, "federation.ronuds: unknown key\n"),
        ({"federation": {"rounds": "many"}}, 'federation.rounds: found "many", expected a whole number'),
        ({"data": {"task": "concept"}}, 'data.task: found "concept"'),
    ],
)
def test_what_cannot_be_spelt_is_refused_at_once_by_its_key(keys, told):
    with pytest.raises(fedra.ConfigError, match="^" + told.replace("(", "\\(")) as refused:
        fedra.Experiment(**keys)
    assert refused.value.key == told.split(":")[0]
    assert "--" not in str(refused.value).replace("-->", "")


def test_a_bad_value_is_shown_in_the_file_where_it_stands(experiment, tmp_path, rows):
    file = tmp_path / "wards.toml"
    file.write_text(experiment.to_toml().replace("batch = 4", "batch = 0"))
    with pytest.raises(fedra.ConfigError, match="work.batch: found 0") as refused:
        fedra.run(file, rows)
    assert "wards.toml:" in str(refused.value) and "batch = 0" in str(refused.value)
    file.write_text(experiment.to_toml())
    with pytest.raises(fedra.ConfigError, match="given as work.batch = 0"):
        fedra.run(fedra.Experiment(file).replace(work={"batch": 0}), rows)


def test_what_is_no_experiment_is_named(tmp_path):
    with pytest.raises(TypeError, match="found a float, expected the path"):
        fedra.Experiment(3.5)
    with pytest.raises(TypeError, match="work.batch|batch: found a object"):
        fedra.Experiment(work={"batch": object()})
    with pytest.raises(fedra.Error, match="gone.toml"):
        fedra.Experiment(tmp_path / "gone.toml")

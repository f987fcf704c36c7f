"""Comparisons, advice, audits and accounts."""

import fedra
import pytest
from conftest import TABLES, some_rows


@pytest.fixture
def clinic(repository):
    return fedra.Experiment((repository / "crates/fedra/tests/tiny.toml").read_text())


def test_a_comparison_says_which_variant_is_better(clinic, tmp_path):
    sweep = {"method.name": ["fedavg", "fedprox"]}
    told = []

    class Heard:
        def say(self, line):
            told.append(line)

        def show(self, line, share):
            pass

        def end(self):
            pass

    clinic = clinic.replace(federation={"rounds": 1})
    compared = fedra.compare(clinic, sweep=sweep, seeds=2, folder=tmp_path / "compared", progress=Heard())
    assert [line["method"] for line in compared["variants"]] == ["fedavg", "fedprox"]
    assert compared["seeds"] == [clinic.seed, clinic.seed + 1] and compared.failures == []
    assert sum("round 1/1" in line for line in told) == 4
    assert "<iframe" in compared._repr_html_() and "over 2 seeds" in repr(compared)
    # What is complete is not run again.
    again = fedra.compare(clinic, sweep=sweep, seeds=2, folder=tmp_path / "compared", progress=False)
    assert again == compared
    pandas = pytest.importorskip("pandas")
    assert isinstance(again.to_pandas(), pandas.DataFrame)


def test_a_comparison_that_cannot_be_is_refused_by_its_key(clinic):
    with pytest.raises(fedra.ConfigError, match="sweep.seed: found"):
        fedra.compare(clinic, sweep={"seed": [1, 2]})


def test_advice_names_a_warm_up(clinic):
    clinic = clinic.replace(federation={"rounds": 2}, data={"shares": {"central": 0.2, "validation": 0.3, "test": 0.0}})
    advice = fedra.advise(clinic, warmups=[0, 1], progress=False)
    assert advice["rounds"] == 2 and isinstance(advice["warmup"], int)
    assert repr(advice).strip() and "<pre>" in advice._repr_html_()
    with pytest.raises(fedra.ConfigError, match="^warmups: found 5"):
        fedra.advise(clinic, warmups=[5])


def test_an_audit_bounds_the_epsilon_of_a_private_run(repository):
    experiment = fedra.Experiment(repository / "experiments/audit.toml").replace(federation={"rounds": 1})
    found = fedra.audit(experiment, canaries=20, progress=False)
    assert found["status"] in ("broken", "not_refuted") and found["canaries"] == 20
    with pytest.raises(fedra.ConfigError, match="confidence"):
        fedra.audit(experiment, confidence=1.5)


def test_an_account_knows_epsilon_noise_and_steps():
    spent = fedra.account.epsilon(q=0.01, sigma=1.0, steps=1000, delta=1e-5)
    assert 1.5 < spent["epsilon"] < 2.2 < 2.5 and spent["epsilon"] < spent["rdp"]
    noise = fedra.account.sigma(epsilon=spent["epsilon"], q=0.01, steps=1000, delta=1e-5)
    assert noise["sigma"] == pytest.approx(1.0, rel=1e-3)
    steps = fedra.account.steps(epsilon=spent["epsilon"], q=0.01, sigma=1.0, delta=1e-5)
    assert steps["steps"] == pytest.approx(1000, rel=0.01)
    with pytest.raises(fedra.ConfigError, match="relation: found 'both'|relation: found \"both\""):
        fedra.account.epsilon(q=0.1, sigma=1.0, steps=1, delta=1e-5, relation="both")
    with pytest.raises(fedra.ConfigError, match="steps: found 0"):
        fedra.account.epsilon(q=0.1, sigma=1.0, steps=0, delta=1e-5)


def test_a_private_run_tells_what_it_spent(trained):
    tables = {
        **TABLES,
        "data": {**TABLES["data"], "labels": trained.model.labels},
        "model": {**TABLES["model"], "tokenizer": trained.model.path},
        "work": {"batch": 4, "optimiser": {"name": "sgd", "rate": 0.1}},
        "privacy": {"unit": "example", "epsilon": 8.0, "delta": 1e-3, "clip": 1.0},
    }
    plan = fedra.plan(tables, some_rows())
    spent = []
    run = fedra.run(tables, some_rows(), progress=False, callbacks=[lambda round: spent.append(round.epsilon)])
    assert run.summary["privacy"]["epsilon"] == spent[-1] <= 8.0
    assert plan["privacy"]["epsilon"] == pytest.approx(spent[-1])

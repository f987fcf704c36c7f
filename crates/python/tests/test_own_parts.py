"""Functions in the place of some of a method's choices."""

import fedra
import pytest
from conftest import weights

numpy = pytest.importorskip("numpy")


def momentum(round, change, state):
    """Momentum as the method fedavgm has it."""
    for name, d in change.items():
        state[name] *= numpy.float32(0.5)
        state[name] += d
        d[:] = state[name]


def test_a_server_rule_has_the_bits_of_the_method_that_it_repeats(experiment, rows):
    own = fedra.run(experiment, rows, progress=False, server=momentum)
    built_in = fedra.run(experiment.replace(method={"name": "fedavgm", "beta": 0.5}), rows, progress=False)
    assert weights(own) == weights(built_in)
    assert own.summary["method"] == "fedavg-with-own-parts"
    assert weights(own) != weights(fedra.run(experiment, rows, progress=False))


def test_a_rule_that_fails_leaves_the_round_before_and_its_state(experiment, rows):
    def fails(round, change, state):
        if round == 2:
            raise ZeroDivisionError("no step")
        momentum(round, change, state)

    with pytest.raises(ZeroDivisionError, match="no step") as raised:
        fedra.run(experiment, rows, progress=False, server=fails)
    assert "fails" in str(raised.traceback[-1])
    folder = raised.value.run.folder
    assert len(raised.value.run.rounds) == 1
    run = fedra.run(experiment, rows, folder=folder, resume=True, progress=False, server=momentum)
    assert weights(run) == weights(fedra.run(experiment, rows, progress=False, server=momentum))


def test_arrays_lie_in_the_library_and_may_be_kept(experiment, rows):
    kept = []

    def keeps(round, change, state):
        name = "block.0.query.weight"
        assert change[name].shape == (16, 16) and change[name].flags.writeable and not change[name].flags.owndata
        kept.append((change[name], change[name].copy()))

    run = fedra.run(experiment, rows, progress=False, server=keeps)
    assert all(numpy.array_equal(array, copy) for array, copy in kept)
    assert weights(run) == weights(fedra.run(experiment, rows, progress=False))


def test_a_sampler_says_who_takes_part(experiment, rows):
    asked = []

    def alternate(round, examples):
        asked.append(examples)
        return [sorted(examples)[round % 2]]

    run = fedra.run(experiment, rows, progress=False, sampler=alternate)
    assert [report["cohort"] for report in run.rounds] == [[1], [0], [1]]
    assert set(asked[0]) == {"north", "south"} and all(count > 0 for count in asked[0].values())
    with pytest.raises(ValueError, match="sampler: found the client \"west\", expected some of north, south"):
        fedra.run(experiment, rows, sampler=lambda round, examples: ["west"])


def test_a_selector_ranks_the_blocks(experiment, rows):
    safl = experiment.replace(model={"blocks": 3}, method={"name": "safl", "k": 1})
    asked = []

    def last(round, client, measured, usual):
        asked.append((client, len(measured)))
        return sorted(usual, reverse=True)

    run = fedra.run(safl, rows, progress=False, selector=last)
    assert all(report["blocks"] == [2] for report in run.rounds)
    assert {client for client, _ in asked} == {"north", "south"} and asked[0][1] == 3
    with pytest.raises(ValueError, match="selector: found the blocks \\[0\\], expected each of"):
        fedra.run(safl, rows, selector=lambda *asked: [0])
    with pytest.raises(fedra.ConfigError, match="method.name: found code of a program"):
        fedra.run(experiment, rows, selector=last)


def test_a_guarantee_covers_a_server_rule_and_no_sampler(experiment, rows, trained):
    private = experiment.replace(
        model={"tokenizer": trained.model.path},
        data={"labels": trained.model.labels},
        work={"optimiser": {"name": "sgd", "rate": 0.1}},
        privacy={"unit": "example", "noise": 1.0, "delta": 1e-3, "clip": 1.0},
    )
    assert fedra.run(private, rows, progress=False, server=momentum).summary["privacy"]["epsilon"] > 0
    with pytest.raises(fedra.ConfigError, match="privacy guarantee does not cover"):
        fedra.run(private, rows, sampler=lambda round, examples: list(examples))


def accuracy(truth, probabilities):
    return (probabilities.argmax(axis=1) == truth).mean()


def test_a_score_judges_the_run_and_changes_no_bit(tables, rows):
    tables["data"]["shares"] = {"central": 0.25, "validation": 0.25, "test": 0.25}
    tables["evaluate"] = {"best": True}
    seen = []

    def score(truth, probabilities):
        seen.append((truth, probabilities, probabilities.copy()))
        return accuracy(truth, probabilities)

    run = fedra.run(tables, rows, progress=False, score=score)
    assert weights(run) == weights(fedra.run(tables, rows, progress=False))
    for report in run.rounds:
        for scored in report["scores"]:
            assert all(one["scores"]["own_score"] == one["scores"]["accuracy"] for one in scored["each"])
    assert run.summary["score"]["name"] == run.summary["best"]["name"] == "own_score"
    assert run.score == run.rounds[-1]["scores"][0]["mean"]["own_score"]
    assert "central_test.own_score" in run.rounds.columns()
    # The arrays are nobody else's, and stay.
    for truth, probabilities, copy in seen:
        assert truth.dtype == numpy.int64 and probabilities.shape == (len(truth), 3)
        assert numpy.allclose(probabilities.sum(axis=1), 1.0) and numpy.array_equal(probabilities, copy)
        assert not probabilities.flags.owndata
    # Three rounds, the central set and two sets of two clients.
    assert len(seen) == 3 * (1 + 2 + 2)


def test_a_score_may_be_missing_and_is_no_text(tables, rows):
    run = fedra.run(tables, rows, progress=False, score=lambda truth, probabilities: float("nan"))
    assert run.summary["score"]["name"] == "macro_f1"
    with pytest.raises(TypeError, match="score: found a str, expected a number or None"):
        fedra.run(tables, rows, score=lambda truth, probabilities: "good")


def test_a_score_that_fails_ends_the_run_and_leaves_it_resumable(experiment, rows):
    calls = []

    def fails(truth, probabilities):
        calls.append(1)
        if len(calls) == 2:
            raise ArithmeticError("no such score")
        return accuracy(truth, probabilities)

    with pytest.raises(ArithmeticError, match="no such score") as raised:
        fedra.run(experiment, rows, progress=False, score=fails)
    assert "fails" in str(raised.traceback[-1])
    stopped = raised.value.run
    assert len(stopped.rounds) == 1
    assert weights(stopped.resume(progress=False)) == weights(fedra.run(experiment, rows, progress=False))
    # Another score would compare what cannot be compared.
    with pytest.raises(fedra.Error, match="another experiment"):
        fedra.run(experiment, rows, folder=stopped.folder, resume=True, server=momentum)


def test_a_score_is_refused_where_nobody_here_has_the_probabilities(tables, rows):
    cut = fedra.Experiment(tables, model={"blocks": 2}, split={"first": 1, "last": 0})
    with pytest.raises(fedra.ConfigError, match="split: found code of a program"):
        fedra.run(cut, rows, score=accuracy)
    tables["data"] |= {"task": "language", "columns": {"text": "note", "client": "hospital"}}
    texts = fedra.Experiment(tables | {"model": {"preset": "tiny-decoder"}})
    with pytest.raises(fedra.ConfigError, match="data.task: found language"):
        fedra.run(texts, [{key: row[key] for key in ("note", "hospital")} for row in rows], score=accuracy)


def test_a_score_of_codes_has_a_truth_for_each_label(tables):
    codes = [["fever"], ["pain", "fever"], [], ["pain"]]
    rows = [{"note": f"case {place}", "codes": codes[place % 4], "hospital": "ns"[place % 2]} for place in range(32)]
    tables["data"] |= {"task": "diagnosis", "columns": {"text": "note", "label": "codes", "client": "hospital"}}
    seen = []

    def exact(truth, probabilities):
        seen.append((truth.dtype, truth.shape == probabilities.shape, truth.shape[1]))
        return ((probabilities > 0.5) == truth).all(axis=1).mean()

    run = fedra.run(tables, rows, progress=False, score=exact)
    assert set(seen) == {(numpy.dtype(bool), True, 2)}
    assert run.score == run.rounds[-1]["scores"][0]["mean"]["exact"]

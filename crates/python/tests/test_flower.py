"""A client of Flower's that trains with Fedra, under Flower's own strategies."""

import fedra
import pytest
from conftest import some_rows

pytest.importorskip("flwr")
numpy = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors.numpy")

from flwr.app import Array, ArrayRecord, Context, Message, RecordDict  # noqa: E402
from flwr.serverapp import Grid  # noqa: E402
from flwr.serverapp.strategy import FedAvg  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

SITES = ("north", "south")


class InProcess(Grid):
    """Flower's grid over client apps of this process: the messages are Flower's, what carries them is a call."""

    def __init__(self, app):
        self.app = app
        self.contexts = {
            1000 + place: Context(1, 1000 + place, {"site": site}, RecordDict(), {}) for place, site in enumerate(SITES)
        }
        self.replies = []

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        self.replies = [self.app(message, self.contexts[message.metadata.dst_node_id]) for message in messages]
        return self.replies


@pytest.fixture(autouse=True)
def identity():
    """What Flower's processes set for whoever makes messages."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@pytest.fixture
def keys(experiment):
    """Plain SGD over all rows of a client, so that a round is one deterministic step."""
    tables = experiment.to_dict()
    tables["data"] |= {"labels": ["heart", "lung", "skin"], "shares": {"central": 0.0, "validation": 0.0, "test": 0.0}}
    tables["work"] = {"batch": 64, "epochs": 1, "optimiser": {"name": "sgd", "rate": 0.5}}
    return tables


def arrays_of(run):
    """The arrays of a run's model, as a server sends them."""
    arrays = safetensors.load_file(run.folder / "model/model.safetensors")
    return ArrayRecord({name: Array(array) for name, array in arrays.items()})


def rows_of(site):
    return [row for row in some_rows() if row["hospital"] == site]


def test_flowers_fedavg_trains_a_model_whose_clients_are_ours(keys, trained):
    from fedra.flower import ClientApp

    app = ClientApp(keys, lambda context: rows_of(context.node_config["site"]), model=trained.model.path)
    grid, initial = InProcess(app), arrays_of(trained)
    result = FedAvg(min_available_nodes=2, fraction_evaluate=0.0).start(grid, initial, num_rounds=1)
    after = {name: array.numpy() for name, array in result.arrays.items()}
    assert any(not numpy.array_equal(array, initial[name].numpy()) for name, array in after.items())
    # Flower's mean over our clients is our own FedAvg over the same rows.
    ours = fedra.run(keys | {"federation": {"rounds": 1}}, some_rows(), progress=False, model=trained.model.path)
    expected = {name: array.numpy() for name, array in arrays_of(ours).items()}
    assert after.keys() == expected.keys()
    for name, array in after.items():
        assert numpy.allclose(array, expected[name], atol=2e-6), name
    assert result.train_metrics_clientapp[1]["train_loss"] > 0


def test_replies_say_how_many_examples_and_the_same_request_gets_the_same_reply(keys, trained):
    from fedra.flower import ClientApp

    keys["data"]["shares"]["test"] = 0.25
    app = ClientApp(keys, rows_of("north"), model=trained.model.path)
    context = Context(1, 1000, {}, RecordDict(), {})
    content = RecordDict({"arrays": arrays_of(trained)})
    first, second = (app(Message(content, 1000, "train"), context).content for _ in range(2))
    assert 0 < first["metrics"]["num-examples"] < len(rows_of("north"))
    assert first["arrays"].keys() == content["arrays"].keys()
    for name, array in first["arrays"].items():
        assert array.data == second["arrays"][name].data, name
    scored = app(Message(content, 1000, "evaluate"), context).content["metrics"]
    assert first["metrics"]["num-examples"] + scored["num-examples"] == len(rows_of("north"))
    assert 0 <= scored["macro_f1"] <= 1 and scored["eval_loss"] > 0


def test_what_a_server_of_flowers_cannot_do_is_refused(keys, trained):
    from fedra.flower import ClientApp

    with pytest.raises(fedra.ConfigError, match="method.name: found 'safl', expected 'fedavg'"):
        ClientApp(keys | {"method": {"name": "safl", "k": 1}})
    with pytest.raises(fedra.ConfigError, match="model.path: found None"):
        ClientApp(keys)

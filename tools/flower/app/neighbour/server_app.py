"""Flower's own FedAvg over the arrays of a file, into another file."""

import json
import time

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Timed(FedAvg):
    """The same, with the seconds of each phase."""

    def __init__(self, **more):
        super().__init__(**more)
        self.seconds, self.since = [], time.monotonic()

    def configure_train(self, *given):
        self.since = time.monotonic()
        return super().configure_train(*given)

    def aggregate_train(self, server_round, replies):
        replies = list(replies)
        self.seconds.append(time.monotonic() - self.since)
        return super().aggregate_train(server_round, replies)


@app.main()
def main(grid, context):
    config = context.run_config
    with np.load(config["initial"]) as file:
        arrays = ArrayRecord({name: Array(file[name]) for name in file.files})
    nodes = int(config["nodes"])
    strategy = Timed(
        fraction_evaluate=0.0, min_train_nodes=nodes, min_available_nodes=nodes
    )
    result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=int(config["rounds"]))
    np.savez(config["final"], **{name: array.numpy() for name, array in result.arrays.items()})
    if config["seconds"]:
        with open(config["seconds"], "w") as file:
            json.dump(strategy.seconds, file)

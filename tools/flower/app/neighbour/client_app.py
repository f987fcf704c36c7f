"""A client in NumPy. It adds 1 to the first number of the first array, so that the mean says how often and
with which weight it was counted, and multiplies all with the scale of the run, if that is not 1, and a little
more that no other node has: equal pieces of two replies would be sent once."""

import numpy as np
from flwr.app import ArrayRecord, Array, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


@app.train()
def train(message, context):
    given = message.content["arrays"]
    arrays = {name: array.numpy() for name, array in given.items()}
    first = sorted(arrays)[0]
    changed = np.array(arrays[first])
    changed.reshape(-1)[0] += 1.0
    arrays[first] = changed
    scale = np.float32(context.run_config["scale"])
    if scale != 1.0:
        scale += np.float32(context.node_id % 1000) * np.float32(1e-6)
        arrays = {name: value * scale for name, value in arrays.items()}
    record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    examples = int(context.run_config["examples"])
    metrics = MetricRecord({"num-examples": examples})
    return Message(content=RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

"""Nodes over Flower's own connection that train nothing: each adds 1 to one number of the model, its own, so
that the final model says who was counted, how often and with which weight."""

import threading
import time

import numpy
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.proto.fleet_pb2 import RegisterNodeFleetRequest
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_utils import ObjectUnavailableError, inflate_object_from_contents
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.run import RunNotRunningException
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.fleet_http_connection import http_request_response
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

# Where answers that must not count leave their mark: so far behind the number of whoever gave them.
POISON = 10


def new_key():
    return ec.generate_private_key(ec.SECP256R1())


class OneHotNode(threading.Thread):
    """A node that answers as it should; a check may let it answer otherwise through `answer`."""

    def __init__(self, url, number, examples, key=None):
        super().__init__(daemon=True)
        self.address, self.number, self.examples, self.key = url.split("//")[1], number, examples, key
        self.answer = lambda node, message, round_number: node.push(node.reply(message))
        self.arrays, self.refused, self.trained, self.failure = {}, 0, 0, None
        self._over = threading.Event()
        self.start()

    def run(self):
        try:
            keys = None
            if self.key:
                keys = (self.key, self.key.public_key())
                with FleetHttpClient.from_server_address(
                    self.address, True, None, interceptors=[NodeAuthHttpInterceptor(*keys)]
                ) as client:
                    client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(keys[1])))
            with http_request_response(self.address, True, authentication_keys=keys) as connection:
                _, self._receive, self._send, _, _, self._pull, self._bring, self._confirm = connection
                while not self._over.is_set():
                    received = self._receive()
                    if received:
                        self._take(*received)
                    else:
                        time.sleep(0.05)
        except BaseException as error:
            self.failure = error
            raise

    def stop(self):
        self._over.set()
        self.join(60)

    def _take(self, message, tree):
        if message.metadata.message_type != "train":
            error = Error(2, "this node is none of fedra")
            return self.push(Message(error=error, reply_to=message))
        run = message.metadata.run_id
        try:
            ids = list(dict.fromkeys(it.object_id for it in iterate_object_tree(tree)))
            found = {it: self._fetch(run, it) for it in ids}
            given = inflate_object_from_contents(message.metadata.message_id, found)
            self._confirm(run, message.metadata.message_id)
        except Exception as error:
            # The coordinator was killed in the middle of it, or the run is over.
            print(f"    node {self.number}: left a message alone: {type(error).__name__}")
            return None
        message.content = given.content
        self.trained += 1
        return self.answer(self, message, int(message.content["config"]["server-round"]))

    def _fetch(self, run, name):
        """An object; it may come a moment after the message that it belongs to."""
        until = time.monotonic() + 20
        while True:
            try:
                return self._pull(run, name)
            except ObjectUnavailableError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def reply(self, message, mark=None):
        """The answer to a message, with 1 more at this node's number, or at another one."""
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        first = sorted(arrays)[0]
        changed = numpy.array(arrays[first])
        changed.reshape(-1)[self.number if mark is None else mark] += 1.0
        arrays[first] = changed
        record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        metrics = MetricRecord({"num-examples": self.examples, "train_loss": 0.5})
        return Message(content=RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    def push(self, reply):
        """Brings an answer with all of its objects; says whether the SuperLink wanted any of them."""
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = get_all_nested_objects(reply)
        try:
            wanted, session = self._send(reply, get_object_tree(reply), 0.0)
            for name, it in objects.items():
                if name in wanted:
                    self._bring(reply.metadata.run_id, session, name, it.deflate())
        except RunNotRunningException:
            # It was stopped.
            self.refused += 1
            return False
        if not wanted:
            self.refused += 1
        return bool(wanted)

"""Faults at a SuperLink: what is killed, stalled, doubled or late on its way. Each check is named as the fact
that it holds. Who is to stall goes through a proxy of its own; the SuperLink is Flower's, unmodified."""

import re
import threading
import time

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from onehot import POISON, OneHotNode, new_key
from parts import Place, flags_of, free_port, wait
from proxy import Proxy, cut, echo, hold, hold_reply, lose_reply, slow

# A push session of a SuperLink ends after so many seconds without an object.
SESSION = 180.0
CLIENTS = {1: 20, 2: 30, 3: 50}


class Faulty(Place):
    """A federation each of whose parties has its own way to the SuperLink."""

    def __init__(self, fedra, flags, serve_flags=(), more=()):
        super().__init__(fedra)
        self.flags, self.serve_flags, self.more = flags, serve_flags, more
        self.ways, self.sites, self.nodes, self.app = {}, {}, {}, "app"

    def begin(self, nodes=(1, 2, 3)):
        """Everything but the run."""
        self.fed("flower", "app", "app")
        self.port = free_port()
        self.link = self.superlink(self.port, more=self.more)
        self.coordinate()
        for number in nodes:
            self.join_again(number)

    def way(self, who):
        if who not in self.ways:
            self.ways[who] = Proxy(self.port)
        return self.ways[who]

    def coordinate(self):
        name = f"serve-{len(self.processes)}"
        command = [self.fedra, "serve", *self.flags, *self.way(0).flags, "--out", "far", *self.serve_flags]
        self.coordinator = self.start(name, command)
        return self.coordinator

    def join_again(self, number):
        name = f"hospital-{number}-{len(self.processes)}"
        self.sites[number] = self.join(self.way(number), number, self.flags, name=name)
        return self.sites[number]

    def superlink_again(self):
        self.link.kill()
        self.link = self.superlink(self.port, name=f"superlink-{len(self.processes)}", more=self.more)

    def flower_run(self):
        return super().flower_run(self.app)

    def succeed(self):
        self.coordinator.succeed()
        for site in self.sites.values():
            site.succeed()
        self.fed("run", "--out", "near", "--quiet", *self.flags)
        assert self.model("near") == self.model("far"), "other bits"
        assert self.log("near") == self.log("far"), "another log"
        assert not self.path("far/superlink.task").exists(), "the task's token is left behind"

    def __exit__(self, kind, value, trace):
        for node in self.nodes.values():
            node.stop()
        for way in self.ways.values():
            way.close()
        super().__exit__(kind, value, trace)


class OneHot(Faulty):
    """A federation of nodes that say who they are in the model."""

    def __init__(self, fedra, rounds, serve_flags=(), more=(), sets=()):
        sets = ["work.optimiser={ name = 'sgd', rate = 1e-30 }", "evaluate.best=false", "model.blocks=1", *sets]
        stock = [word for number, examples in CLIENTS.items() for word in ("--stock", f"hospital-{number}={examples}")]
        super().__init__(fedra, flags_of(rounds, "{ name = 'fedavg' }", sets), [*stock, *serve_flags], more)

    def begin(self):
        self.path("keys").mkdir()
        keys = {number: new_key() for number in CLIENTS}
        for number, key in keys.items():
            public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
            self.path(f"keys/hospital-{number}.pub").write_bytes(public + b"\n")
        self.serve_flags += ["--node-keys", "keys"]
        super().begin(nodes=())
        self.app = self.neighbour()
        for number, key in keys.items():
            self.nodes[number] = OneHotNode(self.way(number).url, number - 1, CLIENTS[number], key)

    def count(self):
        """What the model says of who was counted is what the log says."""
        self.coordinator.succeed()
        for node in self.nodes.values():
            assert node.failure is None, node.failure
        self.fed("run", "--out", "near", "--quiet", *self.flags)
        near, far = (self.arrays(f"{run}/model/model.safetensors") for run in ("near", "far"))
        first = sorted(near)[0]
        moved = (far[first] - near[first]).reshape(-1)
        log = self.log("far")
        weights = list(CLIENTS.values())
        expected = [0.0] * len(moved)
        for report in log:
            assert report["arrived"] == sorted(set(report["arrived"])), report
            whole = sum(weights[client] for client in report["arrived"])
            for client in report["arrived"]:
                expected[client] += weights[client] / whole
        for place, (found, wanted) in enumerate(zip(moved, expected)):
            assert abs(found - wanted) < 1e-4, (place, found, wanted)
        for name in near:
            if name != first:
                assert abs(far[name] - near[name]).max() < 1e-6, name
        print(f"    counted {[round(float(it), 3) for it in moved[:3]]}, arrived {[it['arrived'] for it in log]}")
        return log


def a_node_killed_in_the_middle_of_a_transfer_goes_on_to_the_same_bits(fedra):
    """kill -9 of a node while it fetches a request, and while it brings an answer."""
    with Faulty(fedra, flags_of(6)) as place:
        place.begin()
        place.flower_run()
        for path, rounds in (("/pull-object", 1), ("/push-object", 3)):
            place.wait_for_rounds("far", rounds)
            held = place.way(2).rule(path, hold, skip=1)
            held.wait()
            # The coordinator may have heard of an answer that is never going to be complete.
            time.sleep(1)
            place.sites[2].kill()
            held.abandon()
            begun = time.monotonic()
            place.join_again(2)
            place.wait_for_rounds("far", place.rounds("far") + 1)
            took = time.monotonic() - begun
            print(f"    killed in {path}: the next round was complete after {took:.1f} s")
            assert took < 40, f"a node that was killed in {path} stalled all others for {took:.0f} s"
        place.succeed()


def a_coordinator_killed_in_the_middle_of_a_transfer_goes_on_in_the_same_run(fedra):
    """kill -9 of the coordinator while it sends requests, and while it fetches answers; then it is told to stop.
    Nobody calls flwr."""
    with Faulty(fedra, flags_of(8)) as place:
        place.begin()
        run = place.flower_run()
        tokens = set()
        for path, rounds in (("/push-object", 1), ("/pull-object", 2)):
            place.wait_for_rounds("far", rounds)
            held = place.way(0).rule(path, hold, skip=1)
            held.wait()
            kept = place.path("far/superlink.task")
            assert kept.stat().st_mode & 0o777 == 0o600, oct(kept.stat().st_mode)
            tokens.add(re.search(r'"token":\s*"([^"]+)"', kept.read_text())[1])
            # Nodes may have heard of a request that is never going to be complete.
            time.sleep(1)
            place.coordinator.kill()
            held.abandon()
            begun = time.monotonic()
            place.coordinate().wait_for(f"resumes run {run} of the SuperLink")
            place.wait_for_rounds("far", place.rounds("far") + 1)
            took = time.monotonic() - begun
            print(f"    killed in {path}: the next round was complete after {took:.1f} s")
            assert took < 60, f"a coordinator that was killed in {path} left its nodes waiting for {took:.0f} s"
        place.coordinator.child.terminate()
        assert place.coordinator.end() == 130, place.coordinator.said()
        assert "within a minute in the same run" in place.coordinator.said(), place.coordinator.said()
        assert place.rounds("far") < 8, "it was told to stop too late"
        place.coordinate().wait_for(f"resumes run {run} of the SuperLink")
        place.succeed()
        assert len(tokens) == 1, "one run has one token"
        for file in [*place.folder.glob("*.log"), *place.folder.glob("far/**/*")]:
            if file.is_file():
                assert not any(token.encode() in file.read_bytes() for token in tokens), f"the token is in {file}"
        said = place.flwr("list", "link")
        assert said.count("completed") == 1, said


def a_superlink_killed_in_the_middle_of_a_transfer_comes_back_with_its_database(fedra):
    """kill -9 of the SuperLink while a node brings an answer, and while one fetches a request."""
    with Faulty(fedra, flags_of(6), ["--grace", "120"]) as place:
        place.more = ["--database", place.path("link.db")]
        place.begin()
        place.flower_run()
        for path, rounds in (("/push-object", 1), ("/pull-object", 3)):
            place.wait_for_rounds("far", rounds)
            held = place.way(3).rule(path, hold, skip=1)
            held.wait()
            place.superlink_again()
            held.release()
            begun = time.monotonic()
            place.wait_for_rounds("far", place.rounds("far") + 1)
            print(f"    killed in {path}: the next round was complete after {time.monotonic() - begun:.1f} s")
        place.succeed()


def a_superlink_that_forgets_all_in_the_middle_of_a_round_costs_a_run(fedra):
    """kill -9 of a SuperLink without a database: the coordinator says so; the same command and another run go on."""
    with Faulty(fedra, flags_of(6)) as place:
        place.begin()
        place.flower_run()
        place.wait_for_rounds("far", 2)
        held = place.way(1).rule("/push-object", hold, skip=1)
        held.wait()
        place.superlink_again()
        held.release()
        assert place.coordinator.end() == 1, place.coordinator.said()
        assert "or the SuperLink lost it" in place.coordinator.said(), place.coordinator.said()
        place.coordinate().wait_for("waiting for a run")
        place.flower_run()
        place.succeed()
        for site in place.sites.values():
            assert site.said().count("online at") >= 2, site.said()


def a_push_session_that_expires_is_begun_anew(fedra, who=2, path="/v1/fleet/push-object"):
    """A reply of the SuperLink is on its way for longer than a push session lasts."""
    with Faulty(fedra, flags_of(3), ["--grace", "60"]) as place:
        place.begin()
        place.flower_run()
        place.wait_for_rounds("far", 1)
        stalled = place.way(who).rule(path, slow(SESSION + 8), skip=1)
        stalled.wait()
        begun = time.monotonic()
        place.wait_for_rounds("far", 2, SESSION + 90)
        took = time.monotonic() - begun
        assert took > SESSION, "the push was not stalled"
        place.succeed()
        # "Not stored" is an empty message of protobuf.
        assert place.way(who).answered(path, b"") >= 1, "no session has expired"
        print(f"    the round was complete {took - SESSION:.0f} s after the session's end")


def a_push_session_of_the_coordinator_that_expires_is_begun_anew(fedra):
    """The same for the coordinator in the middle of its requests."""
    a_push_session_that_expires_is_begun_anew(fedra, 0, "/v1/runtime/push-object")


def replayed(rule, request):
    """The SuperLink hands out all replies of former polls again with every poll."""
    status, headers, body = request.forward()
    reply = PullAppMessagesResponse.FromString(body)
    if before := getattr(rule, "before", None):
        reply.MergeFrom(before)
        rule.reached()
    rule.before = PullAppMessagesResponse()
    rule.before.CopyFrom(reply)
    return status, headers, reply.SerializeToString()


def who_answers_twice_counts_once(fedra):
    """The same answer twice, another one under a new name, at once and later; replies that are handed out again."""

    def twice(node, message, round_number):
        answer = node.reply(message)
        assert node.push(answer), "the SuperLink did not want the answer"
        node.push(answer)
        node.push(node.reply(message, node.number + POISON))
        if round_number == 2:
            time.sleep(1.5)
            node.push(node.reply(message, node.number + POISON))

    with OneHot(fedra, rounds=3) as place:
        place.begin()
        place.nodes[1].answer = twice
        polls = place.way(0).rule("/v1/runtime/pull-messages", replayed, times=10**9)
        place.way(3).rule("/push-object", echo, skip=10, times=10)
        place.flower_run()
        log = place.count()
        polls.wait(0)
        assert all(report["arrived"] == [0, 1, 2] for report in log), [report["failed"] for report in log]
        assert place.nodes[1].refused >= 3, "the SuperLink took all answers"


def who_answers_late_does_not_count(fedra):
    """An answer to a request of a former round, and one to a request of a former run."""
    kept, late = [], threading.Event()

    def too_late(node, message, round_number):
        if round_number == 2 and not kept:
            kept.append(message)
            return
        if round_number >= 3 and kept and not late.is_set():
            late.set()
            node.push(node.reply(kept[0], node.number + POISON))
        node.push(node.reply(message))

    former = []

    def of_former_run(node, message, round_number):
        if former and message.metadata.run_id != former[0].metadata.run_id and len(former) == 1:
            former.append(node.push(node.reply(former[0], node.number + POISON)))
        if round_number == 4 and not former:
            former.append(message)
            return
        node.push(node.reply(message))

    flags = ["--deadline", "45", "--grace", "4"]
    with OneHot(fedra, 6, flags, sets=["federation.min_arrivals=1"]) as place:
        place.begin()
        place.nodes[2].answer = too_late
        place.nodes[3].answer = of_former_run
        run = place.flower_run()
        wait("a request that is not answered", lambda: former)
        place.coordinator.kill()
        place.flwr("stop", str(run), "link")
        place.coordinate().wait_for(f"run {run} has ended at the SuperLink")
        place.flower_run()
        log = place.count()
        assert late.is_set() and len(former) == 2 and former[1] is False, (late.is_set(), former)
        assert 1 not in log[1]["arrived"], log[1]
        back = [report["round"] for report in log[2:] if 1 in report["arrived"]]
        assert back, "a node that was late once never counted again"


def nothing_is_counted_twice_or_lost_while_all_are_killed(fedra):
    """Coordinator and SuperLink are killed in mid-transfer, replies get lost, requests come twice."""
    with OneHot(fedra, 6) as place:
        place.more = ["--database", place.path("link.db")]
        place.begin()
        place.flower_run()
        place.way(2).rule("/push-object", echo, skip=10, times=10)
        for path, rounds in (("/push-object", 1), ("/pull-object", 2), ("/pull-messages", 3)):
            place.wait_for_rounds("far", rounds)
            held = place.way(0).rule(path, hold_reply, skip=1)
            held.wait()
            place.coordinator.kill()
            held.abandon()
            place.coordinate().wait_for("resumes run")
        for path, act in (("/confirm-message-received", lose_reply), ("/pull-messages", cut)):
            place.way(0).rule(path, act).wait()
        place.wait_for_rounds("far", 4)
        held = place.way(0).rule("/pull-object", hold, skip=1)
        held.wait()
        place.superlink_again()
        held.release()
        log = place.count()
        assert all(report["arrived"] == [0, 1, 2] for report in log), [report["failed"] for report in log]


def a_coordinator_takes_runs_of_its_own_app_and_leaves_others(fedra):
    """A run of another app waits at the SuperLink; ours is taken though it came later."""
    with Faulty(fedra, flags_of(1)) as place:
        place.begin()
        place.coordinator.wait_for("waiting for a run")
        other = Place.flower_run(place, place.neighbour())
        place.coordinator.wait_for(f"run {other} is ignored")
        ours = place.flower_run()
        place.coordinator.wait_for(f"coordinates run {ours} of the SuperLink")
        place.succeed()
        status = [line for line in place.flwr("list", "link", "--run-id", str(other)).splitlines() if "pending" in line]
        assert status, place.flwr("list", "link")


USUAL = [
    a_coordinator_killed_in_the_middle_of_a_transfer_goes_on_in_the_same_run,
]
LONG = [
    who_answers_twice_counts_once,
    a_node_killed_in_the_middle_of_a_transfer_goes_on_to_the_same_bits,
    a_superlink_killed_in_the_middle_of_a_transfer_comes_back_with_its_database,
    a_superlink_that_forgets_all_in_the_middle_of_a_round_costs_a_run,
    a_push_session_that_expires_is_begun_anew,
    a_push_session_of_the_coordinator_that_expires_is_begun_anew,
    who_answers_late_does_not_count,
    nothing_is_counted_twice_or_lost_while_all_are_killed,
    a_coordinator_takes_runs_of_its_own_app_and_leaves_others,
]

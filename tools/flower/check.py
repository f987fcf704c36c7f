"""Checks of federations at a Flower SuperLink. Each is named as the fact that it holds."""

import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback

import faults
import numpy
from parts import ROOT, TINY, Place, flags_of, free_port, wait

METHODS = [
    "{ name = 'fedavg' }",
    "{ name = 'safl', k = 1, mask = 'per_client' }",
    "{ name = 'fedfrozen', warmup = 1 }",
    "{ name = 'scaffold' }",
]


def same_bits_over_tls_with_node_keys(fedra):
    """Four methods at one SuperLink with certificates and registered nodes: the bits of one process."""
    with Place(fedra) as place:
        place.certificates()
        place.fed("flower", "app", "app")
        link = place.superlink(free_port(), secure=True)
        for number in (1, 2, 3):
            place.node_key(f"hospital-{number}")
        for method in METHODS:
            flags = [TINY, "--set", f"method={method}", "--set", "threads=1"]
            flags += ["--set", "evaluate.attention=true"]
            name = method.split("'")[1]
            begun = time.monotonic()
            place.fed("run", "--out", f"near-{name}", "--quiet", *flags)
            command = [place.fedra, "serve", *flags, *link.flags, "--node-keys", "keys"]
            serve = place.start(f"serve-{name}", [*command, "--out", f"far-{name}"])
            sites = []
            for number in (1, 2, 3):
                more = ["--key", f"keys/hospital-{number}.key", "--state", f"{name}-{number}"]
                sites.append(
                    place.start(
                        f"{name}-{number}.out",
                        [place.fedra, "join", *flags, *link.flags, "--client", f"hospital-{number}", *more],
                    )
                )
            place.flower_run()
            serve.succeed()
            for site in sites:
                site.succeed()
            assert place.model(f"near-{name}") == place.model(f"far-{name}"), f"{name}: other bits"
            assert place.log(f"near-{name}") == place.log(f"far-{name}"), f"{name}: another log"
            print(f"    {name}: the same model and log, {time.monotonic() - begun:.1f} s")
        said = place.flwr("list", "link")
        assert said.count("completed") == len(METHODS), said


def begin(place, flags, serve_flags=(), more=()):
    """A SuperLink, a coordinator, three nodes and a run."""
    place.fed("flower", "app", "app")
    link = place.superlink(free_port(), more=more)
    serve = place.start("serve", [place.fedra, "serve", *flags, *link.flags, "--out", "far", *serve_flags])
    sites = {number: place.join(link, number, flags) for number in (1, 2, 3)}
    run = place.flower_run()
    return link, serve, sites, run


def same(place, flags):
    """The model and the log are those of one process."""
    place.fed("run", "--out", "near", "--quiet", *flags)
    assert place.model("near") == place.model("far"), "other bits"
    assert place.log("near") == place.log("far"), "another log"


def a_node_that_was_killed_comes_back_and_the_bits_are_the_same(fedra):
    """kill -9 of a node in the middle of a round; the same command goes on."""
    with Place(fedra) as place:
        flags = flags_of(8)
        link, serve, sites, _ = begin(place, flags)
        place.wait_for_rounds("far", 2)
        sites[2].kill()
        time.sleep(0.5)
        sites[2] = place.join(link, 2, flags, name="hospital-2-again")
        serve.succeed()
        for site in sites.values():
            site.succeed()
        same(place, flags)


def a_coordinator_that_was_killed_goes_on_in_another_run(fedra):
    """kill -9 of the coordinator; the same command and another `flwr run` go on to the same bits."""
    with Place(fedra) as place:
        flags = flags_of(8)
        link, serve, sites, run = begin(place, flags)
        place.wait_for_rounds("far", 3)
        serve.kill()
        place.flwr("stop", str(run), "link")
        serve = place.start("serve-again", [place.fedra, "serve", *flags, *link.flags, "--out", "far"])
        place.flower_run()
        serve.succeed()
        for site in sites.values():
            site.succeed()
        same(place, flags)


def a_superlink_that_was_killed_comes_back_with_its_database(fedra):
    """kill -9 of the SuperLink; it is started again with its database, and the federation goes on."""
    with Place(fedra) as place:
        flags = flags_of(8)
        more = ["--database", place.path("link.db")]
        link, serve, sites, _ = begin(place, flags, ["--grace", "120"], more=more)
        place.wait_for_rounds("far", 2)
        port = link.url.rsplit(":", 1)[1]
        link.kill()
        link = place.superlink(port, name="superlink-again", more=more)
        if serve.end() != 0:
            # The SuperLink has forgotten who coordinates: another run does.
            print("    the run was lost with the SuperLink; another one goes on")
            serve = place.start("serve-again", [place.fedra, "serve", *flags, *link.flags, "--out", "far"])
            place.flower_run()
            serve.succeed()
        for site in sites.values():
            site.succeed()
        same(place, flags)


def a_run_that_was_stopped_goes_on_in_another_one(fedra):
    """`flwr stop`: the coordinator ends with a sentence, and goes on in another run."""
    with Place(fedra) as place:
        flags = flags_of(8)
        link, serve, sites, run = begin(place, flags)
        place.wait_for_rounds("far", 2)
        place.flwr("stop", str(run), "link")
        assert serve.end() == 1, serve.said()
        assert "was stopped at the SuperLink" in serve.said(), serve.said()
        assert "needs another `flwr run`" in serve.said(), serve.said()
        serve = place.start("serve-again", [place.fedra, "serve", *flags, *link.flags, "--out", "far"])
        place.flower_run()
        serve.succeed()
        for site in sites.values():
            site.succeed()
        same(place, flags)


def a_node_that_vanishes_is_absent_and_counts_once(fedra):
    """A node that never comes back, and one that answers too late: rounds go on with who is there."""
    with Place(fedra) as place:
        flags = flags_of(10, "{ name = 'fedavg' }", ["federation.min_arrivals=1"])
        link, serve, sites, _ = begin(place, flags, ["--grace", "2", "--deadline", "4"])
        place.wait_for_rounds("far", 2)
        sites[1].kill()
        sites[2].child.send_signal(signal.SIGSTOP)
        place.wait_for_rounds("far", 4)
        sites[2].child.send_signal(signal.SIGCONT)
        serve.succeed()
        sites[3].succeed()
        log = place.log("far")
        assert len(log) == 10
        for report in log:
            assert report["arrived"] == sorted(set(report["arrived"])), report
            assert 2 in report["arrived"], report
        assert any(len(report["arrived"]) == 1 for report in log), "nobody was missed"


def our_nodes_take_part_in_a_run_of_flowers_own_fedavg(fedra):
    """Three nodes of ours under Flower's strategy: the model of our own FedAvg, up to rounding."""
    with Place(fedra) as place:
        flags = [TINY, "--set", "threads=1", "--set", "federation.rounds=2"]
        place.fed("run", "--out", "first", "--quiet", *flags)
        # Without AdamW, which makes much of the smallest difference.
        flags += ["--set", "work.optimiser={ name = 'sgd', rate = 0.05 }"]
        flags += ["--set", "model={ path = 'first/model' }"]
        place.fed("run", "--out", "near", "--quiet", *flags)
        arrays = place.arrays("first/model/model.safetensors")
        numpy.savez(place.path("initial.npz"), **arrays)
        link = place.superlink(free_port(), isolation="subprocess")
        for number in (1, 2, 3):
            place.join(link, number, flags, more=["--stock"]).wait_for("online at")
        config = {"initial": str(place.path("initial.npz")), "final": str(place.path("final.npz"))}
        place.flower_run(place.neighbour(), config)
        wait("the end of the run", lambda: "completed" in place.flwr("list", "link"))
        expected = place.arrays("near/model/model.safetensors")
        with numpy.load(place.path("final.npz")) as final:
            assert sorted(final.files) == sorted(arrays)
            far = max(abs(final[name] - expected[name]).max() for name in expected)
            moved = max(abs(final[name] - arrays[name]).max() for name in expected)
        assert far < 1e-6 < 1e-3 < moved, (far, moved)
        print(f"    farthest from our own FedAvg: {far:.1e}; moved by up to {moved:.1e}")


def an_app_of_flowers_own_takes_part_in_our_fedavg(fedra):
    """A client in Python beside two of ours, each with its key, over TLS: its one-hot update counts once a round,
    with its weight."""
    with Place(fedra) as place:
        flags = [TINY, "--set", "threads=1", "--set", "federation.rounds=2"]
        flags += ["--set", "work.optimiser={ name = 'sgd', rate = 1e-30 }"]
        place.certificates()
        link = place.superlink(free_port(), secure=True)
        place.stock_key("hospital-1")
        place.node_key("hospital-2")
        place.node_key("hospital-3")
        more = ["--stock", "hospital-1=20", "--node-keys", "keys"]
        serve = place.start("serve", [place.fedra, "serve", *flags, *link.flags, "--out", "far", *more])
        key = lambda number: ["--key", f"keys/hospital-{number}.key"]
        sites = [place.join(link, number, flags, more=key(number)) for number in (2, 3)]
        place.supernode(link, "supernode", key="keys/hospital-1")
        place.flower_run(place.neighbour(), {"examples": 20})
        serve.succeed()
        for site in sites:
            site.succeed()
        place.fed("run", "--out", "near", "--quiet", *flags)
        near, far = (place.arrays(f"{run}/model/model.safetensors") for run in ("near", "far"))
        first = sorted(near)[0]
        for report, like in zip(place.log("far"), place.log("near"), strict=True):
            assert report["arrived"] == [0, 1, 2], report
            # The app tells no loss, which does not count as zero.
            assert report["loss"] > 0.9 * like["loss"], (report["loss"], like["loss"])
        others = [int(re.search(r"with (\d+) training", site.said())[1]) for site in sites]
        share = 2 * 20 / (20 + sum(others))
        moved = (far[first] - near[first]).reshape(-1)
        assert abs(moved[0] - share) < 1e-4, (moved[0], share)
        assert abs(moved[1:]).max() < 1e-6
        print(f"    two rounds moved one number by {moved[0]:.4f}, expected {share:.4f}")


def weights_of_1e14_are_reported_and_a_limit_survives_them(fedra):
    """A client in Python beside two of ours sends finite weights of 1e14. Without a limit the run tells of it, in the
    log, among the events and in `fedra status`, and does not end well if its loss is no number; with one it does."""
    with Place(fedra) as place:
        place.certificates()
        link = place.superlink(free_port(), secure=True)
        place.stock_key("hospital-1")
        place.node_key("hospital-2")
        place.node_key("hospital-3")
        place.supernode(link, "supernode", key="keys/hospital-1")
        app = place.neighbour()
        for name, limit in (("open", []), ("limited", ["--set", "federation.max_norm={ times_median = 2.0 }"])):
            flags = [TINY, "--set", "threads=1", "--set", "federation.rounds=1", *limit]
            more = ["--stock", "hospital-1=20", "--node-keys", "keys", "--out", name]
            serve = place.start(f"serve-{name}", [place.fedra, "serve", *flags, *link.flags, *more])
            for number in (2, 3):
                more = ["--key", f"keys/hospital-{number}.key", "--state", f"{name}-{number}"]
                command = [place.fedra, "join", *flags, *link.flags, "--client", f"hospital-{number}", *more]
                place.start(f"{name}-{number}", command)
            place.flower_run(app, {"examples": 20, "scale": 1e14})
            status, said = serve.end(), serve.said()
            assert "hospital-1: the update has norm" in said, said
            events = [json.loads(line) for line in place.path(f"{name}/events.jsonl").read_text().splitlines()]
            far = [event for event in events if event["event"] == "far_update"]
            assert far and all(event["client"] == "hospital-1" for event in far), far
            assert far[0]["scaled"] == bool(limit) and far[0]["norm"] > 1e13 * far[0]["median"], far
            assert f"fedra_far_updates {len(far)}" in place.fed("status", name, "--format", "prometheus")
            if limit:
                assert status == 0, said
                assert max(abs(it).max() for it in place.arrays("limited/model/model.safetensors").values()) < 1e3
            else:
                if status == 0:
                    scores = json.loads(place.path("open/summary.json").read_text())["scores"]
                    assert all(numpy.isfinite(scores[on]["loss"]) for on in scores), scores
                else:
                    assert "has not been finite" in said or "non-finite values" in said, said
                print(f"    without a limit it ended with {status}")


def a_clock_that_is_ten_minutes_off_is_said_and_does_no_harm(fedra):
    """Nodes whose clocks are behind and ahead use the SuperLink's time."""
    if not shutil.which("faketime"):
        print("    skipped: faketime is not installed")
        return
    with Place(fedra) as place:
        flags = flags_of(3)
        place.fed("flower", "app", "app")
        link = place.superlink(free_port())
        serve = place.serve(link, flags)
        sites = []
        for number, clock in ((1, "-10m"), (2, "+10m"), (3, "+0")):
            command = ["faketime", "-f", clock, place.fedra, "join", *flags, *link.flags]
            command += ["--client", f"hospital-{number}", "--state", f"state-{number}"]
            sites.append(place.start(f"hospital-{number}", command))
        place.flower_run()
        serve.succeed()
        for site in sites:
            site.succeed()
        # The SuperLink tells whole seconds, and its answer takes a moment.
        for site, how in ((sites[0], "behind"), (sites[1], "ahead of")):
            found = re.search(rf"clock is (\d+) s {how}", site.said())
            assert found and abs(int(found[1]) - 600) <= 5, site.said()
        assert "clock" not in sites[2].said(), sites[2].said()
        same(place, flags)


def a_private_run_keeps_its_guarantee_and_status_tells_it(fedra):
    """Example-level privacy: sites' own ledgers come to the server's epsilon, and `fedra status` tells it."""
    with Place(fedra) as place:
        flags = [TINY, "--set", "privacy.epsilon=8", "--set", "threads=1"]
        _, serve, sites, _ = begin(place, flags)
        serve.succeed()
        for site in sites.values():
            site.succeed()
        epsilon = json.loads(place.path("far/summary.json").read_text())["privacy"]["epsilon"]
        assert 7.9 <= epsilon <= 8.0, epsilon
        ledgers = [json.loads(place.fed("account", "ledger", "--json", f"state-{n}")) for n in (1, 2, 3)]
        assert abs(max(it["pld"] for it in ledgers) - epsilon) < 1e-9, ledgers
        status = json.loads(place.fed("status", "far", "--format", "json"))
        assert status["complete"] == 3 and abs(status["epsilon"] - epsilon) < 1e-9, status
        assert status["federation"]["phase"] == "ended", status
        assert all(site["sent"] > 0 and site["received"] > 0 for site in status["federation"]["sites"]), status
        assert "fedra_rounds_complete 3" in place.fed("status", "far", "--format", "prometheus")


def who_differs_is_refused_with_a_sentence(fedra):
    """Another setting, another client's name: said, and the node waits for another run. A key that nobody registered
    is its end."""
    with Place(fedra) as place:
        flags = flags_of(2)
        place.certificates()
        place.fed("flower", "app", "app")
        link = place.superlink(free_port(), secure=True)
        for client in ("hospital-1", "hospital-2"):
            place.node_key(client)
        command = [place.fedra, "serve", *flags, *link.flags, "--out", "far", "--node-keys", "keys"]
        without = place.start("serve-without-a-key", command)
        assert without.end() == 2, without.said()
        assert "there is no key for hospital-3" in without.said(), without.said()
        place.start("serve", [*command, "--wait-for", "2"])
        place.flower_run()

        def joined(number, key, more=()):
            name = f"refused-{number}-{len(place.processes)}"
            return place.join(link, number, [*flags, *more], name=name, more=["--key", key])

        def refused(site, said):
            site.wait_for(said)
            site.wait_for("waiting for another run")
            site.kill()

        refused(joined(1, "keys/hospital-1.key", ["--set", "seed=4"]), "the experiments differ")
        refused(joined(2, "keys/hospital-1.key"), "expected that of the client hospital-2")
        place.fed("flower", "key", "stranger.key")
        stranger = joined(3, "stranger.key")
        assert stranger.end() == 2, stranger.said()
        assert "its key is not registered there" in stranger.said(), stranger.said()


def the_older_of_two_processes_with_one_key_stays(fedra):
    """A second process with a node's key waits until the first is gone; the run does not notice."""
    with Place(fedra) as place:
        flags = flags_of(8)
        place.certificates()
        place.fed("flower", "app", "app")
        link = place.superlink(free_port(), secure=True)
        for number in (1, 2, 3):
            place.node_key(f"hospital-{number}")
        serve = place.start("serve", [place.fedra, "serve", *flags, *link.flags, "--out", "far", "--node-keys", "keys"])
        key = lambda number: ["--key", f"keys/hospital-{number}.key"]
        sites = [place.join(link, number, flags, more=key(number)) for number in (1, 2, 3)]
        place.flower_run()
        place.wait_for_rounds("far", 1)
        command = [place.fedra, "join", *flags, *link.flags, "--client", "hospital-2", *key(2)]
        second = place.start("second", [*command, "--state", "state-second"])
        second.wait_for("or another process uses it")
        serve.succeed()
        for site in sites:
            site.succeed()
        same(place, flags)
        second.wait_for("online at")
        second.kill()


def federations_that_meet_at_one_superlink_leave_each_other_alone(fedra):
    """Two studies of the same hospitals, each with nodes and a coordinator of its own, at the same time."""
    with Place(fedra) as place:
        place.fed("flower", "app", "app")
        link = place.superlink(free_port())
        studies = {name: [*flags_of(rounds), "--set", f"seed={rounds}"] for name, rounds in (("heart", 12), ("lung", 9))}
        serves, sites = {}, []
        for study, flags in studies.items():
            serves[study] = place.serve(link, flags, name=f"serve-{study}", out=f"far-{study}")
            for number in (1, 2, 3):
                command = [place.fedra, "join", *flags, *link.flags, "--client", f"hospital-{number}"]
                sites.append(place.start(f"{study}-{number}", [*command, "--state", f"state-{study}-{number}"]))
        # Both runs are taken by somebody; which by whom does not matter.
        place.flower_run()
        place.flower_run()
        for study, flags in studies.items():
            serves[study].succeed(300)
            place.fed("run", "--out", f"near-{study}", "--quiet", *flags)
            assert place.model(f"near-{study}") == place.model(f"far-{study}"), f"{study}: other bits"
            assert place.log(f"near-{study}") == place.log(f"far-{study}"), f"{study}: another log"
        for site in sites:
            site.succeed()


def the_page_on_deployment_does_what_it_says(fedra):
    """Every block of docs/deploy.md, from empty machines to finished runs, over both networks."""
    done = subprocess.run([sys.executable, ROOT / "tools/flower/deploy.py", "--fedra", fedra])
    assert done.returncode == 0, f"deploy.py ended with {done.returncode}"


# Those that a change has to pass, in minutes, and those that take longer.
USUAL = [
    the_page_on_deployment_does_what_it_says,
    same_bits_over_tls_with_node_keys,
    a_node_that_was_killed_comes_back_and_the_bits_are_the_same,
    our_nodes_take_part_in_a_run_of_flowers_own_fedavg,
    an_app_of_flowers_own_takes_part_in_our_fedavg,
    *faults.USUAL,
]
LONG = [
    weights_of_1e14_are_reported_and_a_limit_survives_them,
    a_coordinator_that_was_killed_goes_on_in_another_run,
    a_superlink_that_was_killed_comes_back_with_its_database,
    a_run_that_was_stopped_goes_on_in_another_one,
    a_node_that_vanishes_is_absent_and_counts_once,
    a_clock_that_is_ten_minutes_off_is_said_and_does_no_harm,
    a_private_run_keeps_its_guarantee_and_status_tells_it,
    who_differs_is_refused_with_a_sentence,
    the_older_of_two_processes_with_one_key_stays,
    federations_that_meet_at_one_superlink_leave_each_other_alone,
    *faults.LONG,
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fedra", required=True, help="the fedra command")
    parser.add_argument("--list", action="store_true", help="name the checks")
    parser.add_argument("--all", action="store_true", help="those that take longer too")
    parser.add_argument("checks", nargs="*", help="which ones")
    given = parser.parse_args()
    known = {check.__name__: check for check in USUAL + LONG}
    wanted = known if given.all else [check.__name__ for check in USUAL]
    if given.list:
        print("\n".join(known))
        return 0
    failed = 0
    for name in given.checks or wanted:
        begun = time.monotonic()
        try:
            known[name](given.fedra)
            print(f"test-flower: {name}: ok, {time.monotonic() - begun:.1f} s", flush=True)
        except Exception:
            failed += 1
            traceback.print_exc()
            print(f"test-flower: {name}: FAILED", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

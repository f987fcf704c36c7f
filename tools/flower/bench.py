"""A round of 22 million f32 with two nodes at one SuperLink: Python nodes under Flower's own FedAvg, then nodes
and a coordinator of fedra, in turn. Seconds of the train phase, processor seconds and the largest resident
memory of each process. `tools/flower/bench.py --fedra target/dist/fedra --model DIR` (a model folder of about
22 million parameters, such as all-MiniLM-L6-v2). With `--lora RANK` our nodes train adapters alone, which says what
memory that takes and compares with nothing."""

import argparse
import json
import os
import pathlib
import statistics
import threading
import time

import numpy
from parts import Place, free_port, wait

TICKS = os.sysconf("SC_CLK_TCK")


def members(session):
    """The processes of a session."""
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                if int(fields[3]) == session:
                    yield folder, fields
            except (OSError, IndexError):
                continue


class Meter:
    """Samples processor time and memory of sessions; those of processes that end in between are kept."""

    def __init__(self, processes):
        self.sessions = {name: process.child.pid for name, process in processes.items()}
        self.memory = {name: 0 for name in processes}
        self.ticks = {name: {} for name in processes}
        self.begun = self.count()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def count(self):
        for name, session in self.sessions.items():
            resident = 0
            for folder, fields in members(session):
                self.ticks[name][folder.name] = int(fields[11]) + int(fields[12])
                resident += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
            self.memory[name] = max(self.memory[name], resident)
        return {name: sum(ticks.values()) for name, ticks in self.ticks.items()}

    def run(self):
        while not self.stopped.wait(0.2):
            self.count()

    def stop(self):
        self.stopped.set()
        self.thread.join()
        ended = self.count()
        return {
            name: ((ended[name] - self.begun[name]) / TICKS, self.memory[name] / 1e6)
            for name in self.sessions
        }


def shown(title, seconds, used):
    print(f"{title}: train phase s {', '.join(f'{it:.1f}' for it in seconds)}")
    for name, (processor, memory) in used.items():
        print(f"    {name}: {processor:.1f} processor s, {memory:.0f} MB at most")


def python(given):
    with Place(given.fedra) as place:
        # Numbers that differ, before and after: equal pieces of arrays are stored and sent once.
        model = numpy.random.default_rng(1).standard_normal(given.parameters, dtype=numpy.float32)
        numpy.savez(place.path("initial.npz"), model=model)
        link = place.superlink(free_port(), isolation="subprocess")
        nodes = {f"node {number}": place.supernode(link, f"node-{number}") for number in (1, 2)}
        time.sleep(12)
        idle = Meter({"superlink": link, **nodes})
        time.sleep(20)
        shown("Python, idle for 20 s", [], idle.stop())
        meter = Meter({"superlink": link, **nodes})
        config = {
            "initial": str(place.path("initial.npz")),
            "final": str(place.path("final.npz")),
            "seconds": str(place.path("seconds.json")),
            "rounds": given.rounds,
            "nodes": 2,
            "scale": 1.001,
        }
        place.flower_run(place.neighbour(), config)
        wait("the rounds", place.path("seconds.json").exists, 900)
        seconds = json.loads(place.path("seconds.json").read_text())
        shown("Python nodes, Flower's FedAvg", seconds, meter.stop())
        return seconds


def ours(given):
    with Place(given.fedra) as place:
        rows = lambda name: "".join(
            json.dumps({"text": f"a note of {name}", "label": label, "client": name}) + "\n" for label in ("heart", "lung")
        )
        for name in ("north", "west"):
            place.path(f"{name}.jsonl").write_text(rows(name))
        place.path("study.toml").write_text(
            "[data]\nsource = 'jsonl'\ntask = 'classes'\ntrain = 'north.jsonl'\nlabels = ['lung', 'heart']\n"
            f"max_tokens = 16\nshares = {{ central = 0.0, validation = 0.0, test = 0.0 }}\n[model]\npath = '{pathlib.Path(given.model).resolve()}'\n"
            f"{f'lora = {{ rank = {given.lora} }}' if given.lora else ''}\n"
            f"[federation]\nrounds = {given.rounds}\nnames = ['north', 'west']\nstart = '{given.start}'\n"
            "[work]\nmax_steps = 1\nbatch = 2\noptimiser = { name = 'sgd', rate = 1e-3 }\n"
        )
        place.fed("flower", "app", "app")
        link = place.superlink(free_port())
        flags = ["study.toml", "--set", "threads=1"]
        nodes = {}
        for name in ("north", "west"):
            command = [place.fedra, "join", *flags, *link.flags, "--client", name, "--state", f"state-{name}"]
            nodes[f"node {name}"] = place.start(name, [*command, "--set", f"data.train={name}.jsonl"])
            nodes[f"node {name}"].wait_for("online at")
        idle = Meter({"superlink": link, **nodes})
        time.sleep(20)
        shown("fedra, idle for 20 s", [], idle.stop())
        serve = place.serve(link, flags)
        meter = Meter({"superlink": link, "coordinator": serve, **nodes})
        place.flower_run()
        wait("the rounds", lambda: place.rounds("far") >= given.rounds or serve.child.poll(), 900)
        used = meter.stop()
        serve.succeed()
        lines = place.path("far/rounds.jsonl").read_text().splitlines()
        phases = [json.loads(line)["phases"] for line in lines]
        seconds = [it["sync"] + it["train"] for it in phases]
        shown("nodes and coordinator of fedra", seconds, used)
        return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fedra", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--turns", type=int, default=1, help="how often each side has its turn")
    parser.add_argument("--lora", type=int, default=0, metavar="RANK")
    parser.add_argument("--start", default="sent", choices=["sent", "shared"], help="whether the first model is sent")
    parser.add_argument("--parameters", type=int, default=22_000_000)
    given = parser.parse_args()
    if given.lora:
        ours(given)
        return
    theirs, own = [], []
    for _ in range(given.turns):
        theirs += python(given)
        own += ours(given)
    for name, of in (("means", statistics.mean), ("medians", statistics.median)):
        print(f"{name}: fedra {of(own):.1f} s, Python nodes {of(theirs):.1f} s, {100 * of(own) / of(theirs):.0f} %")


if __name__ == "__main__":
    main()

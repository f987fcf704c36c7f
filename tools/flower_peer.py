#!/usr/bin/env python3
"""Flower doing the work of `fedra bench fold` and `fedra bench round`; prints one JSON object.

    python tools/flower_peer.py fold  [--updates 20] [--repeats 3]
    python tools/flower_peer.py round [--clients 100] [--rounds 6]
    python tools/flower_peer.py both --fedra target/dist/fedra [--times 5]    # interleaved, as a table

Install the peer in an environment of its own:

    python3.11 -m venv flower && flower/bin/pip install "flwr[simulation]==1.42.0"

If its pins cannot be met (flwr 1.42.0 asks for a certifi that not every index has yet), install the
requirements it lists with that one pin left out, `ray==2.55.1` among them, and then
`pip install --no-deps flwr==1.42.0`.

fold   `aggregate_arrayrecords` over updates that are all in memory; the best of the repeats is told.
round  `run_simulation` with clients that send back what they got, a thousand numbers. Processor time
       is that of the whole process tree, the mean of all rounds but the first; the first round and
       all before it are the cold start. Memory is the sum of proportional set sizes over the tree,
       the largest seen at the end of a round. Linux only.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

STARTED = time.perf_counter()

# The parameters of MiniLM without a head: the shape `minilm` of `fedra bench`.
BLOCK = [(384, 384), (384,)] * 4 + [(384,)] * 4 + [(1536, 384), (1536,), (384, 1536), (384,)]
MINILM = [(30522, 384), (512, 384), (2, 384), (384,), (384,)] + BLOCK * 6


def fold(options):
    import numpy as np
    from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords

    random = np.random.default_rng(0)
    replies = []
    for number in range(options.updates):
        change = {f"p{i}": Array(random.standard_normal(s, dtype=np.float32) * 0.01) for i, s in enumerate(MINILM)}
        weight = MetricRecord({"num-examples": number + 1})
        replies.append(RecordDict({"arrays": ArrayRecord(change), "metrics": weight}))
    cpu, wall = [], []
    for _ in range(options.repeats):
        before, start = time.process_time(), time.perf_counter()
        aggregate_arrayrecords(replies, "num-examples")
        cpu.append(time.process_time() - before)
        wall.append(time.perf_counter() - start)
    return {
        "updates": options.updates,
        "parameters": sum(int(np.prod(shape)) for shape in MINILM),
        "cpu_seconds": round(min(cpu), 4),
        "wall_seconds": round(min(wall), 4),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def tree():
    """This process and all that descend from it."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    found, new = set(), {os.getpid()}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found


def cost():
    """Processor seconds up to now and bytes held now, over the tree."""
    ticks, held = 0, 0
    for process in tree():
        try:
            with open(f"/proc/{process}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            ticks += sum(int(field) for field in fields[11:15])  # own and of children that ended
            with open(f"/proc/{process}/smaps_rollup") as file:
                held += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK"), held


def round_(options):
    import numpy as np
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client, server, ends = ClientApp(), ServerApp(), []

    @client.train()
    def train(message, _context):
        told = MetricRecord({"num-examples": 10, "loss": 0.5})
        return Message(RecordDict({"arrays": message.content["arrays"], "metrics": told}), reply_to=message)

    class Watched(FedAvg):
        def aggregate_train(self, server_round, replies):
            replies = list(replies)
            failed = sum(reply.has_error() for reply in replies)
            if failed or len(replies) != options.clients:
                raise RuntimeError(f"round {server_round}: {len(replies)} answers, {failed} of them errors")
            result = super().aggregate_train(server_round, replies)
            ends.append((time.perf_counter(), *cost()))
            return result

    @server.main()
    def main(grid, _context):
        every = {"min_train_nodes": options.clients, "min_available_nodes": options.clients}
        strategy = Watched(fraction_train=1.0, fraction_evaluate=0.0, **every)
        start = ArrayRecord({"w": Array(np.zeros((10, 100), np.float32))})
        strategy.start(grid=grid, initial_arrays=start, num_rounds=options.rounds)

    run_simulation(
        server_app=server,
        client_app=client,
        num_supernodes=options.clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
    if len(ends) != options.rounds:
        sys.exit(f"the simulation ended after {len(ends)} whole rounds of {options.rounds}")
    (wall, cpu, _), (last_wall, last_cpu, _) = ends[0], ends[-1]
    later = len(ends) - 1
    return {
        "clients": options.clients,
        "rounds": later,
        "parameters": 1000,
        "cpu_seconds": round((last_cpu - cpu) / later, 4),
        "wall_seconds": round((last_wall - wall) / later, 4),
        "peak_bytes": max(held for _, _, held in ends),
        "cold_start_cpu_seconds": round(cpu, 2),
        "cold_start_wall_seconds": round(wall - STARTED, 2),
    }


def measure(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def both(options):
    print("| work | flower CPU-s, median (best) | fedra CPU-s, median (best) | ratio of medians | peak MB, flower / fedra |")
    print("| --- | --- | --- | --- | --- |")
    for work in ["fold", "round"]:
        sides = [], []
        for _ in range(options.times):
            sides[0].append(measure([sys.executable, __file__, work]))
            sides[1].append(measure([options.fedra, "bench", work, "--json"]))
        cpu = [[run["cpu_seconds"] for run in side] for side in sides]
        median, best = [statistics.median(side) for side in cpu], [min(side) for side in cpu]
        peak = [max(run["peak_bytes"] for run in side) / 1e6 for side in sides]
        print(
            f"| {work} | {median[0]:.4g} ({best[0]:.4g}) | {median[1]:.4g} ({best[1]:.4g}) "
            f"| {median[0] / median[1]:.1f} | {peak[0]:.0f} / {peak[1]:.0f} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    work = parser.add_subparsers(dest="work", required=True)
    folding = work.add_parser("fold")
    folding.add_argument("--updates", type=int, default=20)
    folding.add_argument("--repeats", type=int, default=3)
    rounds = work.add_parser("round")
    rounds.add_argument("--clients", type=int, default=100)
    rounds.add_argument("--rounds", type=int, default=6)
    side_by_side = work.add_parser("both")
    side_by_side.add_argument("--fedra", default="target/dist/fedra")
    side_by_side.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    if options.work == "both":
        return both(options)
    if options.work == "round" and options.rounds < 2:
        parser.error("--rounds: expected at least 2, for the first is the cold start")
    from importlib.metadata import version

    result = {"fold": fold, "round": round_}[options.work](options)
    print(json.dumps({"peer": f"flwr {version('flwr')}", **result}))


if __name__ == "__main__":
    main()

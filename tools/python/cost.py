"""What callbacks and functions in the place of a method's choices cost: the same federation with and without each.

    python tools/python/cost.py [--repeats 7] [--blocks 6] [--width 384]

It needs NumPy and an optimised build of the package (`pip install .`). Runs are interleaved; a row has the median
processor time of a round, over all that a run takes, and what is added to that of the run with nothing.
"""

import argparse
import statistics
import time

import fedra

CLIENTS, ROUNDS = 4, 10


def rows():
    parts = [("chest pain", "heart"), ("short of breath", "lung"), ("an itchy rash", "skin")]
    for place in range(CLIENTS * 24):
        text, ward = parts[place % 3]
        yield {"note": f"{text} for {place} days", "ward": ward, "hospital": f"hospital-{place % CLIENTS}"}


def experiment(arguments):
    return fedra.Experiment(
        name="cost",
        data={
            "task": "classes",
            "columns": {"text": "note", "label": "ward", "client": "hospital"},
            "shares": {"central": 0.25, "validation": 0.0, "test": 0.0},
        },
        model={"preset": "tiny-encoder", "blocks": arguments.blocks, "width": arguments.width, "heads": 6},
        method={"name": "safl", "k": arguments.blocks},
        federation={"rounds": ROUNDS},
        work={"batch": 8, "max_steps": 1},
    )


def read(round):
    for array in round.parameters.values():
        array[..., :1].sum()


def accuracy(truth, probabilities):
    return (probabilities.argmax(axis=1) == truth).mean()


def halve(round, change, state):
    for array in change.values():
        array *= 0.5


def momentum(round, change, state):
    for name, array in change.items():
        state[name] *= 0.5
        state[name] += array
        array[:] = state[name]


WAYS = {
    "nothing": {},
    "a callback": {"callbacks": [lambda round: None]},
    "a callback that reads all parameters": {"callbacks": [read]},
    "a sampler": {"sampler": lambda round, examples: list(examples)},
    "a selector": {"selector": lambda round, client, measured, usual: usual},
    "a score": {"score": accuracy},
    "a server rule that does nothing": {"server": lambda round, change, state: None},
    "a server rule that halves": {"server": halve},
    "a server rule with momentum": {"server": momentum},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    arguments = parser.parse_args()
    table, settings = list(rows()), experiment(arguments)
    parameters = fedra.plan(settings, table)["parameters"]
    took = {way: [] for way in WAYS}
    for _ in range(arguments.repeats):
        for way, options in WAYS.items():
            begun = time.process_time()
            fedra.run(settings, table, progress=False, **options)
            took[way].append((time.process_time() - begun) / ROUNDS)
    print(f"{parameters:,} parameters, {CLIENTS} clients with a step each; {arguments.repeats} runs of {ROUNDS} rounds")
    base = statistics.median(took["nothing"])
    for way, seconds in took.items():
        median = statistics.median(seconds)
        print(f"{way:38} {1000 * median:8.1f} ms a round  {1000 * (median - base):+8.1f} ms")


if __name__ == "__main__":
    main()

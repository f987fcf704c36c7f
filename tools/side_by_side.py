#!/usr/bin/env python3
"""Time `fedra bench step` against a peer, interleaved, and print medians and ratios as a table.

    python tools/side_by_side.py --peer "python torch_step.py" --fedra target/dist/fedra --repeats 5
    python tools/side_by_side.py --peer "python tools/transformers_step.py" --shapes vit-s,modernbert-base --batch 8

The peer is any command that takes --shape, --batch, --seq, --threads, --steps and --train-blocks and
prints one JSON object with median_ms, best_ms and peak_bytes. Each case runs peer, fedra, peer, fedra,
... so that a noisy machine is noisy for both; the table gives the median over the repeats of each
run's median step, the best step of all, and peer time / fedra time (above 1, fedra is faster).
"""
import argparse
import json
import shlex
import statistics
import subprocess

CASES = [
    ("everything trains", ["--shape", "minilm"], []),
    ("blocks 4 and 5", ["--shape", "minilm", "--train-blocks", "4,5"], []),
    ("blocks 4 and 5, cached prefix", ["--shape", "minilm", "--train-blocks", "4,5"], ["--cached-prefix"]),
    ("tiny, everything trains", ["--shape", "tiny", "--steps", "40"], []),
]


def measure(command, flags):
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--fedra", default="target/dist/fedra")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shapes", help="measure these, with everything trained, in place of the usual cases")
    parser.add_argument("--batch", type=int, help="sequences or images in a batch, in place of 16")
    options = parser.parse_args()
    peer, fedra = shlex.split(options.peer), [options.fedra, "bench", "step", "--json"]
    threads = ["--threads", str(options.threads)]
    if options.batch:
        threads += ["--batch", str(options.batch)]
    cases = CASES
    if options.shapes:
        cases = [(f"{shape}, everything trains", ["--shape", shape], []) for shape in options.shapes.split(",")]
    runs = {name: ([], []) for name, _, _ in cases}
    for _ in range(options.repeats):
        for name, flags, ours in cases:
            runs[name][0].append(measure(peer, flags + threads))
            runs[name][1].append(measure(fedra, flags + ours + threads))
    print("| work | peer ms (best) | fedra ms (best) | peer / fedra, medians (best) | peak memory, fedra / peer |")
    print("| --- | --- | --- | --- | --- |")
    for name, sides in runs.items():
        median = [statistics.median(run["median_ms"] for run in side) for side in sides]
        best = [min(run["best_ms"] for run in side) for side in sides]
        memory = [max(run["peak_bytes"] for run in side) for side in sides]
        print(
            f"| {name} | {median[0]:.0f} ({best[0]:.0f}) | {median[1]:.0f} ({best[1]:.0f}) "
            f"| {median[0] / median[1]:.2f} ({best[0] / best[1]:.2f}) "
            f"| {memory[1] / 1e6:.0f} / {memory[0] / 1e6:.0f} MB = {memory[1] / memory[0]:.2f} |"
        )


if __name__ == "__main__":
    main()

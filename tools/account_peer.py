"""Epsilon of usual runs by `fedra account` and by dp-accounting, with the time that each takes.

    python -m venv VENV && VENV/bin/pip install dp-accounting
    cargo build --release
    VENV/bin/python tools/account_peer.py target/release/fedra

dp-accounting rounds losses to multiples of 1e-4 by default and is asked for 1e-5 as well: both are
upper bounds, and the finer one is nearer to the truth. Times are the least of three, within one
process for dp-accounting, and of a whole process for fedra. Exits with 1 if fedra is looser than
the finer answer by more than a thousandth.
"""

import json
import subprocess
import sys
import time

import dp_accounting
from dp_accounting import pld, rdp

CASES = [
    # q, sigma, steps, delta
    (0.01, 1.0, 1_000, 1e-5),
    (0.01, 1.0, 10_000, 1e-5),
    (0.01, 4.0, 10_000, 1e-5),
    (0.001, 0.8, 10_000, 1e-5),
    (0.001, 2.0, 10_000, 1e-5),
    (0.001, 1.0, 100_000, 1e-6),
    (0.05, 1.0, 1_000, 1e-5),
    (0.01, 20.0, 1_000, 1e-5),
]
RELATIONS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def least_of_three(answer):
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        result = answer()
        times.append(1e3 * (time.perf_counter() - begun))
    return result, min(times)


def peer(case, relation, width):
    q, sigma, steps, delta = case
    accountant = pld.PLDAccountant(RELATIONS[relation], value_discretization_interval=width)
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    return accountant.compose(event, steps).get_epsilon(delta)


def peer_rdp(case):
    q, sigma, steps, delta = case
    event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    return rdp.RdpAccountant().compose(event, steps).get_epsilon(delta)


def ours(fedra, case, relation):
    q, sigma, steps, delta = map(str, case)
    command = [fedra, "account", "epsilon", "--q", q, "--sigma", sigma, "--steps", steps]
    command += ["--delta", delta, "--relation", relation, "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def main(fedra):
    print("| relation | q | sigma | steps | fedra | ms | peer, 1e-4 | ms | peer, 1e-5 | ms | rdp, fedra / peer |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    loose = 0
    for relation in RELATIONS:
        for case in CASES:
            found, spent = least_of_three(lambda: ours(fedra, case, relation))
            coarse, coarse_time = least_of_three(lambda: peer(case, relation, 1e-4))
            fine, fine_time = least_of_three(lambda: peer(case, relation, 1e-5))
            other = f"{peer_rdp(case):.5f}" if relation == "add-remove" else "-"
            q, sigma, steps, _ = case
            print(
                f"| {relation} | {q} | {sigma} | {steps} | {found['pld']:.5f} | {spent:.0f} "
                f"| {coarse:.5f} | {coarse_time:.0f} | {fine:.5f} | {fine_time:.0f} "
                f"| {found['rdp']:.5f} / {other} |",
                flush=True,
            )
            loose += found["pld"] > fine * 1.001
    sys.exit(1 if loose else 0)


if __name__ == "__main__":
    main(sys.argv[1])

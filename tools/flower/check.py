"""Checks of federations at a Flower SuperLink. Each is named as the fact that it holds."""

import argparse
import sys
import time
import traceback

from parts import TINY, Place, free_port

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
            place.fed("flower", "key", f"{number}.key")
            place.flwr("supernode", "register", f"{number}.key.pub", "link")
        for method in METHODS:
            flags = [TINY, "--set", f"method={method}", "--set", "threads=1"]
            flags += ["--set", "evaluate.attention=true"]
            name = method.split("'")[1]
            begun = time.monotonic()
            place.fed("run", "--out", f"near-{name}", "--quiet", *flags)
            serve = place.serve(link, flags, name=f"serve-{name}", out=f"far-{name}")
            sites = []
            for number in (1, 2, 3):
                more = ["--key", f"{number}.key", "--state", f"{name}-{number}"]
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


CHECKS = [same_bits_over_tls_with_node_keys]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fedra", required=True, help="the fedra command")
    parser.add_argument("--list", action="store_true", help="name the checks")
    parser.add_argument("checks", nargs="*", help="which ones; all without any")
    given = parser.parse_args()
    known = {check.__name__: check for check in CHECKS}
    if given.list:
        print("\n".join(known))
        return 0
    failed = 0
    for name in given.checks or known:
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

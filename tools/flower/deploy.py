"""Does what docs/deploy.md says, from the page itself, on four machines in namespaces.

A block tells in its first line who runs it where (`# root@server`, `# fedra@each site, until the last round`)
or which file it is (`# /etc/systemd/system/fedra-join.service at each site`). A sentence that begins with
"Carry" moves files. Whatever is not understood is an error, so no block can be on the page without being run.
At the end all models must be that of `fedra run` on all rows, to the bit. Only the standard library is used;
without Flower in this Python the page's part on the SuperLink is left out, and that is said.

    deploy.py --fedra BINARY [--page FILE] [--containers STATIC-BINARY]
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from machine import Machine, why_not

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/deploy.md"
SITES = ["north", "west", "south"]
HOSTS = "127.0.0.1 localhost\n203.0.113.7 server.example\n"
ADDRESS = "203.0.113.7/32"
HOME = "/var/lib/fedra"
PATIENCE = 120.0
# The parts of the page that need more than a machine, by their headings.
FLOWER, CONTAINER = "At a Flower SuperLink", "In a container"

WHO = re.compile(r"# (you|root|fedra)@(build|server|north|west|south|each site|every machine)(, until the last round|, after the last round)?$")
FILE = re.compile(r"# (/\S+|Containerfile) at (build|server|each site)$")
CARRY = re.compile(r"Carry ((?:`[^`]+`(?:, | and )?)+) from (\w+|each site) to ([\w ]+)\.(?=\s|$)")


@dataclasses.dataclass
class Step:
    """Something that the page tells to do: a block, or a sentence that carries files."""

    line: int
    part: str
    kind: str
    text: str


def steps(page):
    """What a page tells to do, in its order."""
    found, part, prose, block = [], "", [], None
    for number, line in enumerate(page.splitlines(), 1):
        fence = re.match(r"\s*```(.*)", line)
        if block is not None:
            if fence:
                found.append(dataclasses.replace(block, text="\n".join(block.text)))
                block = None
            else:
                block.text.append(line)
            continue
        if fence or not line.strip() or line.startswith("#"):
            found += carried(part, prose)
            prose = []
        if fence:
            block = Step(number, part, fence[1].strip(), [])
        elif line.startswith("## "):
            part = line[3:].strip()
        elif line.strip():
            prose.append((number, line))
    if block is not None:
        raise AssertionError(f"line {block.line}: a block without an end")
    return found + carried(part, prose)


def carried(part, prose):
    """The sentences of a paragraph that carry files. One that begins so and is not understood is an error."""
    if not prose:
        return []
    text = " ".join(line.strip() for _, line in prose)
    found = [Step(prose[0][0], part, "carry", match[0]) for match in CARRY.finditer(text)]
    told = len(re.findall(r"\bCarry\b", text))
    if told != len(found):
        raise AssertionError(f"line {prose[0][0]}: {told} sentences carry files, {len(found)} are understood: {text}")
    return found


def check(step):
    """Complains of a step that nobody would know how to take."""
    first = step.text.splitlines()[0] if step.text else ""
    forms = {"sh": WHO, "toml": FILE, "ini": FILE, "dockerfile": FILE, "carry": CARRY}
    if step.kind != "text" and not (step.kind in forms and forms[step.kind].match(first)):
        raise AssertionError(
            f"docs/deploy.md:{step.line}: a block of {step.kind!r} that begins with {first!r}: expected `# root@server`, "
            "`# /path/to/file at server` or, for a picture, a block of `text`"
        )
    return step


class Walk:
    """The machines, and what runs on them."""

    def __init__(self, fedra, page, with_flower, static, stack):
        self.fedra, self.page, self.static = fedra, page, static
        self.left_out = {} if with_flower else {FLOWER: "this Python has no Flower"}
        if not static:
            self.left_out[CONTAINER] = "`deploy.py --containers` runs it"
        self.with_flower = with_flower
        # Python itself and Flower are lent: no machine here reaches PyPI.
        lent = dict.fromkeys([sys.base_prefix, sys.prefix] if with_flower else [])
        lent = [path for path in lent if not path.startswith("/usr")]
        self.machines = {}
        for name in ["server", *SITES]:
            machine = Machine(name, HOSTS, lent if name == "server" else [])
            stack.callback(machine.stop)
            if static:
                self.allow_containers(machine)
            self.machines[name] = machine
        if with_flower:
            self.lend_flower(self.machines["server"])
        self.running, self.units, self.count = [], [], 0
        self.logs = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fedra-deploy-")))

    def lend_flower(self, machine):
        """/opt/flower shows what this Python has installed; what is written there is the machine's own."""
        python = pathlib.Path(sys.base_prefix, "bin/python3")
        overlay = f"lowerdir={sys.prefix},upperdir=/opt/.new,workdir=/opt/.work"
        machine.ask(
            f"printf '#!/bin/sh\\nexec {python} \"$@\"\\n' > /usr/local/bin/python3; chmod 755 /usr/local/bin/python3; mkdir /opt/flower /opt/.new /opt/.work; "
            f"mount -t overlay overlay -o {overlay} /opt/flower"
        )
        if not machine.path("/opt/flower/bin/flwr").exists():
            raise AssertionError(f"{sys.prefix} cannot be lent to a machine")

    def allow_containers(self, machine):
        """What podman has to be told in a machine that is itself one of namespaces."""
        files = {
            "containers.conf": '[containers]\ncgroups = "disabled"\ndefault_ulimits = []\n',
            "storage.conf": '[storage]\ndriver = "vfs"\ngraphroot = "/var/lib/containers"\nrunroot = "/run/containers"\n',
            "policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
        }
        folder = machine.path("/etc/containers")
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)

    def run(self):
        for step in self.page:
            if step.part in self.left_out:
                continue
            self.part = step.part
            try:
                self.take(step)
            except AssertionError as error:
                raise AssertionError(f"docs/deploy.md:{step.line}: {error}") from None
            self.count += step.kind != "text"
        self.wait()
        for part, why in self.left_out.items():
            print(f"    left out: {part}: {why}")
        self.check_models()
        self.check_refusal()

    def take(self, step):
        begun = time.monotonic()
        if step.kind == "text":
            return
        first = step.text.splitlines()[0] if step.text else ""
        if step.kind == "carry":
            self.carry(step.text)
        elif step.kind == "sh":
            self.shell(step, *WHO.match(first).groups())
        else:
            self.write(step, *FILE.match(first).groups())
        if os.environ.get("VERBOSE"):
            print(f"    {step.line}: {first[:60]}: {time.monotonic() - begun:.1f} s", flush=True)

    def places(self, where):
        """The machines that a word means."""
        named = {"each site": SITES, "every machine": ["server", *SITES]}.get(where, [where])
        lost = [name for name in named if name not in self.machines]
        if lost:
            raise AssertionError(f"there is no machine {lost[0]!r}")
        return [self.machines[name] for name in named]

    def for_site(self, text, machine, where):
        """What is written for north, for another site."""
        return re.sub(r"\bnorth\b", machine.name, text) if where == "each site" else text

    # The three kinds of steps.

    def carry(self, sentence):
        files, source, targets = CARRY.match(sentence).groups()
        for file in re.findall(r"`([^`]+)`", files):
            for name in re.split(r" and ", re.sub(r"\bthe\b ?", "", targets)):
                for target in self.places(name.strip()):
                    for data, to in self.picked(file, source, name.strip(), target):
                        (target.path("root") / to).write_bytes(data)

    def picked(self, file, source, to_whom, target):
        """The bytes of a file, and its name at the target. What the sites send differs by name."""
        if source == "build":
            built = self.static if self.part == CONTAINER else self.fedra
            given = built if file == "target/dist/fedra" else ROOT / file
            return [(given.read_bytes(), pathlib.Path(file).name)]
        found = []
        for machine in self.places(source):
            named = self.for_site(file, machine, source)
            named = self.for_site(named, target, to_whom)
            path = machine.path(named)
            if not path.exists():
                raise AssertionError(f"{machine.name} has no file {named}")
            found.append((path.read_bytes(), pathlib.Path(named).name))
        return found

    def write(self, step, name, where):
        if where == "build":
            file = ROOT / name
            if file.read_text().strip() != "\n".join(step.text.splitlines()[1:]).strip():
                raise AssertionError(f"the page shows another {name} than the repository has")
            return
        for machine in self.places(where):
            file = machine.path(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.for_site(step.text, machine, where) + "\n")
            if name.startswith(HOME):
                machine.ask(f"chown -R fedra: {HOME}")
            if name.endswith(".service"):
                said = subprocess.run(machine.command(f"systemd-analyze verify {name}"), capture_output=True, text=True)
                if said.returncode != 0 or said.stderr.strip():
                    raise AssertionError(f"systemd-analyze verify: {said.stdout}{said.stderr}")

    def shell(self, step, user, where, when):
        if where == "build":
            return self.build(step)
        if when == ", after the last round":
            self.wait()
        for machine in self.places(where):
            script = self.for_site(step.text, machine, where)
            command = machine.command(script, user)
            if when == ", until the last round":
                log = self.logs / f"{step.line}-{machine.name}"
                with open(log, "wb") as out:
                    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
                self.running.append((machine, child, log))
                continue
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
            if done.returncode != 0:
                raise AssertionError(f"{machine.name}: ended with {done.returncode}:\n{done.stdout}{done.stderr}{self.heard()}")
            self.units += [(machine, unit) for unit in re.findall(r"systemctl enable --now (fedra-\S+)", script)]

    def build(self, step):
        """An optimised build takes minutes: the same command makes the debug build that is at hand."""
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
        at_hand = pathlib.Path(target, "debug/fedra").resolve()
        if self.part == CONTAINER or at_hand != self.fedra or not shutil.which("cargo"):
            print("    not built: another binary was given")
            return
        script = step.text.replace("--profile dist ", "")
        done = subprocess.run(["bash", "-eu", "-c", script], cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"ended with {done.returncode}:\n{done.stdout}{done.stderr}")

    def heard(self):
        """What those that still run have said."""
        said = [f"--- {machine.name}: {log.read_text(errors='replace')}" for machine, _, log in self.running]
        return "".join(said)

    def wait(self):
        """Until all that was started has come to its end, with status 0."""
        until = time.monotonic() + PATIENCE
        while any(child.poll() is None for _, child, _ in self.running):
            if any(child.poll() for _, child, _ in self.running) or time.monotonic() > until:
                break
            time.sleep(0.05)
        for machine, child, _ in self.running:
            if child.poll() != 0 and (child.poll() is not None or time.monotonic() > until):
                raise AssertionError(f"{machine.name}: status {child.poll()}, expected 0:\n{self.heard()}")
        self.running.clear()
        until = time.monotonic() + PATIENCE
        for machine, unit in self.units:
            while (state := machine.unit(unit))["ActiveState"] not in ("inactive", "failed"):
                if time.monotonic() > until:
                    break
                time.sleep(0.2)
            if (state["ActiveState"], state["Result"], state["ExecMainStatus"]) != ("inactive", "success", "0"):
                raise AssertionError(f"{machine.name}: {unit}: {state}\n{machine.ask(f'journalctl --no-pager -u {unit}')}")
        self.units.clear()

    # What must hold at the end.

    def check_models(self):
        """Every model that the page made is that of one process with all rows, to the bit."""
        server = self.machines["server"]
        rows = "".join(self.machines[site].path(f"{HOME}/rows.jsonl").read_text() for site in SITES)
        server.path(f"{HOME}/all.jsonl").write_text(rows)
        server.ask(f"chown fedra: {HOME}/all.jsonl")
        model = lambda run: server.path(f"{HOME}/runs/{run}/model/model.safetensors").read_bytes()
        expected = ["study", "service"] + ["link"] * bool(self.with_flower) + ["container"] * bool(self.static)
        made = sorted(path.name for path in server.path(f"{HOME}/runs").iterdir())
        if made != sorted(expected):
            raise AssertionError(f"found the runs {made}, expected {sorted(expected)}")
        near = {}
        for run in made:
            log = server.path(f"{HOME}/runs/{run}/rounds.jsonl").read_text().splitlines()
            for line in log:
                if json.loads(line)["arrived"] != [0, 1, 2]:
                    raise AssertionError(f"runs/{run}: not all sites in {line}")
            if len(log) not in near:
                near[len(log)] = self.near(len(log))
            if model(run) != near[len(log)]:
                raise AssertionError(f"runs/{run}: other bits than `fedra run`")
        if len(set(near.values())) != 2:
            raise AssertionError(f"runs of {sorted(near)} rounds: expected two models that differ")
        print(f"    {self.count} steps of the page; {', '.join(made)}: the bits of one process")

    def near(self, rounds):
        """The model of `fedra run` after some rounds, at the server, which for once has all rows."""
        command = f"fedra run study.toml --set data.train=all.jsonl --set federation.rounds={rounds} --out near-{rounds} --quiet"
        server = self.machines["server"]
        done = subprocess.run(server.command(command, "fedra"), capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
        return server.path(f"{HOME}/near-{rounds}/model/model.safetensors").read_bytes()

    def check_refusal(self):
        """A site that is refused for good ends with status 2, and its unit does not try again."""
        west = self.machines["west"]
        unit = west.path("/etc/systemd/system/fedra-join.service").read_text()
        west.path("/etc/systemd/system/refused.service").write_text(unit.replace("--client west", "--client east"))
        west.ask("systemctl daemon-reload; systemctl start refused")
        until = time.monotonic() + PATIENCE
        while (state := west.unit("refused"))["ActiveState"] != "failed" and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(1)
        state = west.unit("refused")
        if (state["ActiveState"], state["ExecMainStatus"], state["NRestarts"]) != ("failed", "2", "0"):
            raise AssertionError(f"a refused site: {state}")


def has_flower():
    try:
        return sys.prefix != sys.base_prefix and importlib.metadata.version("flwr")
    except importlib.metadata.PackageNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fedra", required=True, type=pathlib.Path, help="the fedra command")
    parser.add_argument("--page", type=pathlib.Path, default=PAGE, help="another page than docs/deploy.md")
    parser.add_argument("--containers", type=pathlib.Path, help="also build a container of this static binary, and run it")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    try:
        page = [check(step) for step in steps(given.page.read_text())]
    except AssertionError as error:
        print(error)
        return 1
    parts = {step.part for step in page}
    assert {FLOWER, CONTAINER} <= parts, f"expected the parts {FLOWER} and {CONTAINER} on the page"
    why = why_not()
    if why:
        print(f"    skipped: {why}")
        return 0
    if not given.inside:
        # A network in which nobody else listens.
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "--inside"])
    for words in (["link", "set", "lo", "up"], ["addr", "add", ADDRESS, "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)
    try:
        with contextlib.ExitStack() as stack:
            Walk(given.fedra.resolve(), page, has_flower(), given.containers and given.containers.resolve(), stack).run()
    except AssertionError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

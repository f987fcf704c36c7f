"""Processes of a federation at a Flower SuperLink, in a folder that is thrown away."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import numpy
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

PATIENCE = 180.0
BIN = pathlib.Path(sys.executable).parent
ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "crates/fedra/tests/tiny.toml"
CLOCK_KEYS = ("seconds", "slowest", "phases", "most_updates_held", "memory")


def wait(what, is_so, patience=PATIENCE):
    """Waits until something is so."""
    until = time.monotonic() + patience
    while not (found := is_so()):
        if time.monotonic() > until:
            raise AssertionError(f"waited in vain for {what}")
        time.sleep(0.02)
    return found


def flags_of(rounds, method="{ name = 'scaffold' }", more=()):
    """A federation that keeps corrections, so that a lost or doubled answer would show in the bits."""
    flags = [TINY, "--set", f"method={method}", "--set", "threads=1"]
    flags += ["--set", f"federation.rounds={rounds}"]
    for key in more:
        flags += ["--set", key]
    return flags


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A process whose words are kept in a file."""

    def __init__(self, place, name, command, **more):
        self.name, self.file = name, place.path(f"{name}.log")
        self.out = open(self.file, "ab")
        self.child = subprocess.Popen(
            [str(part) for part in command],
            cwd=place.folder,
            env=place.env,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **more,
        )

    def said(self):
        return self.file.read_text(errors="replace")

    def wait_for(self, part, patience=PATIENCE):
        def heard():
            if part in self.said():
                return True
            if self.child.poll() is not None and part not in self.said():
                raise AssertionError(f"{self.name} ended without {part!r}:\n{self.said()}")
            return False

        wait(f"{part!r} of {self.name}", heard, patience)
        return self.said()

    def end(self, patience=PATIENCE):
        try:
            return self.child.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end:\n{self.said()}") from None

    def succeed(self, patience=PATIENCE):
        status = self.end(patience)
        if status != 0:
            raise AssertionError(f"{self.name} ended with {status}:\n{self.said()}")

    def kill(self):
        """As kill -9 does, with whatever it started."""
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        self.out.close()

    def interrupt(self):
        self.child.send_signal(signal.SIGINT)


class Place:
    """A folder with everything in it, and the processes that were started there."""

    def __init__(self, fedra):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fedra-flower-"))
        self.fedra = pathlib.Path(fedra).resolve()
        self.env = dict(
            os.environ,
            FLWR_HOME=str(self.folder / "flwr"),
            FLWR_TELEMETRY_ENABLED="0",
            FLWR_DISABLE_UPDATE_CHECK="1",
            PATH=f"{BIN}:{os.environ['PATH']}",
            NO_COLOR="1",
            COLUMNS="200",
        )
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for process in reversed(self.processes):
            process.kill()
        if kind is None:
            shutil.rmtree(self.folder)
        else:
            print(f"kept for a look: {self.folder}")

    def path(self, name):
        return self.folder / name

    def start(self, name, command, **more):
        process = Process(self, name, command, **more)
        self.processes.append(process)
        return process

    def run(self, command, may_fail=False):
        """Runs a command to its end; what it says."""
        command = [str(part) for part in command]
        done = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=PATIENCE
        )
        if done.returncode != 0 and not may_fail:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def flwr(self, *words):
        return self.run([BIN / "flwr", *words])

    def fed(self, *words):
        return self.run([self.fedra, *words])

    # The parts of a federation.

    def certificates(self):
        self.fed("certs", "certs", "--server", "127.0.0.1", "localhost", "--client", "hospital-1")

    def superlink(self, port, secure=False, name="superlink", more=(), isolation="process"):
        """Starts a SuperLink; with certificates and node authentication where it is secure."""
        command = [BIN / "flower-superlink", "--host", "127.0.0.1", "--port", port]
        command += ["--isolation", isolation, "--disable-runtime-dependency-installation", *more]
        if secure:
            command += ["--ssl-ca-certfile", "certs/ca.pem", "--ssl-certfile", "certs/server.pem"]
            command += ["--ssl-keyfile", "certs/server.key", "--enable-supernode-auth"]
        else:
            command += ["--insecure"]
        process = self.start(name, command)
        process.url = f"{'https' if secure else 'http'}://127.0.0.1:{port}"
        process.flags = ["--superlink", process.url] + (["--ca", "certs/ca.pem"] if secure else [])
        config = self.path("flwr/config.toml")
        config.parent.mkdir(exist_ok=True)
        words = 'root-certificates = "%s"' % self.path("certs/ca.pem") if secure else "insecure = true"
        config.write_text(
            f'[superlink]\ndefault = "link"\n\n[superlink.link]\naddress = "127.0.0.1:{port}"\n{words}\n'
        )
        process.wait_for("Uvicorn running")
        return process

    def supernode(self, link, name, key=None):
        """Starts a node of Flower's own, in Python; with its key where the SuperLink is secure."""
        command = [BIN / "flower-supernode", "--superlink", link.url.split("//")[1]]
        command += ["--host", "127.0.0.1", "--port", free_port()]
        if key:
            command += ["--root-certificates", "certs/ca.pem", "--auth-supernode-private-key", key]
            # Between the node and the processes that it starts.
            command += ["--ssl-ca-certfile", "certs/ca.pem", "--ssl-certfile", "certs/server.pem"]
            command += ["--ssl-keyfile", "certs/server.key"]
        else:
            command += ["--insecure"]
        return self.start(name, command)

    def node_key(self, client):
        """A key of ours for a client, registered at the SuperLink."""
        self.path("keys").mkdir(exist_ok=True)
        self.fed("flower", "key", f"keys/{client}.key")
        self.flwr("supernode", "register", f"keys/{client}.key.pub", "link")

    def stock_key(self, client):
        """A key as `ssh-keygen -t ecdsa -b 384` makes it, registered at the SuperLink."""
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        self.path("keys").mkdir(exist_ok=True)
        self.path(f"keys/{client}").write_bytes(private)
        self.path(f"keys/{client}.pub").write_bytes(public + b"\n")
        self.flwr("supernode", "register", f"keys/{client}.pub", "link")

    def neighbour(self):
        """The app that knows nothing of fedra, where `flwr run` may build it."""
        shutil.copytree(ROOT / "tools/flower/app", self.path("neighbour"))
        return "neighbour"

    def flower_run(self, app="app", config=()):
        """Begins a run with `flwr run`; its number."""
        words = [word for key, value in dict(config).items() for word in ("--run-config", f"{key}={json.dumps(value)}")]
        said = self.flwr("run", app, "link", *words)
        found = re.search(r"run (\d{6,})", said)
        assert found, said
        return int(found[1])

    def serve(self, link, flags, name="serve", out="far"):
        return self.start(name, [self.fedra, "serve", *flags, *link.flags, "--out", out])

    def join(self, link, number, flags, name=None, more=()):
        client = f"hospital-{number}"
        command = [self.fedra, "join", *flags, *link.flags, "--client", client]
        command += ["--state", f"state-{number}", *more]
        return self.start(name or client, command)

    # What a run came to.

    def model(self, run):
        return self.path(run).joinpath("model/model.safetensors").read_bytes()

    def arrays(self, file):
        """The arrays of a safetensors file in f32, by name."""
        data = self.path(file).read_bytes()
        length = int.from_bytes(data[:8], "little")
        head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
        head.pop("__metadata__", None)
        assert all(it["dtype"] == "F32" for it in head.values()), head
        read = lambda it: numpy.frombuffer(body[slice(*it["data_offsets"])], "<f4").reshape(it["shape"])
        return {name: read(it) for name, it in head.items()}

    def log(self, run):
        lines = self.path(run).joinpath("rounds.jsonl").read_text().splitlines()
        reports = [json.loads(line) for line in lines]
        return [{key: it[key] for key in it if key not in CLOCK_KEYS} for it in reports]

    def rounds(self, run):
        log = self.path(run) / "rounds.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def wait_for_rounds(self, run, rounds, patience=PATIENCE):
        wait(f"{rounds} rounds in {run}", lambda: self.rounds(run) >= rounds, patience)

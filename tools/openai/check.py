"""Talks to `fedra serve --model DIR --openai` with the client of OpenAI's own Python package.

    check.py --fedra target/debug/fedra

A small decoder is trained on invented conversations and served. What the package returns is compared with what
`fedra generate --chat` writes; then the examples of docs/chat.md are run as they stand there.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import openai

ROOT = pathlib.Path(__file__).resolve().parents[2]
ASKED = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "My head hurts"}]
KEY = "0123456789abcdef0123456789abcdef"


def trained(fedra, place):
    """A run on a few conversations, in the folder runs/talks."""
    things = {"head": "drink water and rest", "back": "keep moving and stay warm", "foot": "rest it"}
    days = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
    with open(place / "talks.jsonl", "w") as rows:
        for day in days:
            for ill, answer in things.items():
                messages = [{"role": "user", "content": f"My {ill} hurts since {day}"},
                            {"role": "assistant", "content": answer}]
                rows.write(json.dumps({"messages": messages, "clinic": "north" if day < "s" else "south"}) + "\n")
    run(fedra, place, "init", "talks.jsonl", "--client-column", "clinic", "--preset", "tiny-decoder", "--yes")
    run(fedra, place, "run", "talks.toml", "--quiet", "--set", "federation.rounds=2")


def run(fedra, place, *arguments):
    done = subprocess.run([fedra, *arguments], cwd=place, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


class Server:
    """A server, which is told to stop at the end."""

    def __init__(self, fedra, place, *arguments, environment=None):
        command = [fedra, "serve", "--model", "runs/talks", "--openai", *arguments]
        self.process = subprocess.Popen(command, cwd=place, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(environment or {})})
        self.address = None
        for line in self.process.stderr:
            found = re.search(r"http://\S+", line)
            if found:
                self.address = found.group()
                break
        if self.address is None:
            sys.exit("the server said no address")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(2)
        _, rest = self.process.communicate(timeout=120)
        expect("status of the server after Ctrl-C", self.process.returncode, 0)
        print(rest.strip())


def expect(what, found, expected):
    if found != expected:
        sys.exit(f"test-openai: {what}: found {found!r}, expected {expected!r}")
    print(f"ok: {what}")


def refused(what, kind, call):
    try:
        call()
    except kind as error:
        print(f"ok: {what}: {error}")
        return error
    sys.exit(f"test-openai: {what}: found an answer, expected {kind.__name__}")


def checks(fedra, place):
    (place / "asked.json").write_text(json.dumps(ASKED))
    generate = ["generate", "--chat", "--model", "runs/talks", "--messages", "asked.json", "--max-tokens", "12", "--json"]
    generated = json.loads(run(fedra, place, *generate))
    text = generated["text"].lstrip()
    ask = {"model": "talks", "messages": ASKED, "max_tokens": 12, "temperature": 0}
    with Server(fedra, place, "--listen", "127.0.0.1:0", environment={"FEDRA_API_KEY": KEY}) as server:
        client = openai.OpenAI(base_url=server.address, api_key=KEY, max_retries=0)
        expect("models", [model.id for model in client.models.list()], ["talks"])
        expect("one model", client.models.retrieve("talks").owned_by, "fedra")
        whole = client.chat.completions.create(**ask)
        expect("the text of an answer", whole.choices[0].message.content, text)
        expect("tokens of the question", whole.usage.prompt_tokens, generated["prompt_tokens"])
        expect("tokens of the answer", whole.usage.completion_tokens, len(generated["tokens"]))
        expect("why it ended", whole.choices[0].finish_reason, "stop" if generated["ended"] == "stop_token" else "length")

        stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
        chunks = list(stream)
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        expect("the text of a stream", "".join(pieces), text)
        expect("tokens at its end", chunks[-1].usage.completion_tokens, len(generated["tokens"]))
        with client.chat.completions.stream(**ask) as events:
            final = events.get_final_completion()
        expect("the package's own reader of streams", final.choices[0].message.content, text)

        drawn = [client.chat.completions.create(**{**ask, "temperature": 1.5, "seed": seed}).choices[0].message.content
                 for seed in (1, 1, 2, 3)]
        expect("the same seed draws the same text", drawn[0], drawn[1])
        expect("other seeds draw others", len(set(drawn)) > 1, True)
        plain = client.completions.create(model="talks", prompt="My head", max_tokens=5, temperature=0)
        expect("a completion of a text", plain.usage.completion_tokens <= 5, True)

        error = refused("an unknown model", openai.NotFoundError,
                        lambda: client.chat.completions.create(**{**ask, "model": "gpt-4o"}))
        expect("its code", error.code, "model_not_found")
        error = refused("two answers", openai.BadRequestError, lambda: client.chat.completions.create(**ask, n=2))
        expect("its field", error.param, "n")
        tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
        refused("tools", openai.BadRequestError, lambda: client.chat.completions.create(**ask, tools=tools))
        long = [{"role": "user", "content": "hurts " * 4000}]
        error = refused("a long conversation", openai.BadRequestError,
                        lambda: client.chat.completions.create(**{**ask, "messages": long}))
        expect("its code", error.code, "context_length_exceeded")
        stranger = openai.OpenAI(base_url=server.address, api_key="another key of some length", max_retries=0)
        refused("another key", openai.AuthenticationError, lambda: stranger.models.list())

        # Who leaves in the middle disturbs nobody.
        stream = client.chat.completions.create(**{**ask, "max_tokens": 1000}, stream=True)
        next(iter(stream))
        stream.close()
        expect("an answer after one that was left", client.chat.completions.create(**ask).choices[0].message.content, text)


def documented(fedra, place):
    """Runs the examples of docs/chat.md, at the address that they name."""
    page = (ROOT / "docs/chat.md").read_text()
    section = page.split("## Serve it to existing tools")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.S)
    commands = [text for kind, text in blocks if kind == "sh" and "curl" in text]
    programs = [text for kind, text in blocks if kind == "python"]
    if not commands or not programs:
        sys.exit("test-openai: docs/chat.md has no example of curl, or none in Python")
    with Server(fedra, place):
        for text in programs:
            done = subprocess.run([sys.executable, "-c", text], cwd=place, capture_output=True, text=True)
            expect(f"the example in Python ({done.stdout.strip()!r}, {done.stderr.strip()[-200:]!r})", done.returncode, 0)
            expect("it writes something", bool(done.stdout.strip()), True)
        if shutil.which("curl") is None:
            print("test-openai: skipped the examples of curl, which is not here")
            return
        for text in commands:
            done = subprocess.run(["bash", "-euc", text], cwd=place, capture_output=True, text=True)
            expect("the example of curl", (done.returncode, '"object":"chat.completion"' in done.stdout), (0, True))


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--fedra", required=True, type=pathlib.Path)
    fedra = str(arguments.parse_args().fedra.resolve())
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        trained(fedra, place)
        checks(fedra, place)
        documented(fedra, place)
    print(f"test-openai: no fault (openai {openai.__version__})")


if __name__ == "__main__":
    main()

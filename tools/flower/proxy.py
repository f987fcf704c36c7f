"""A proxy between one party and a SuperLink, which holds, loses, repeats or slows requests by path and count."""

import http.client
import http.server
import threading
import time

PATIENCE = 180.0


class Rule:
    """What happens to requests of one path: after `skip` of them have passed, to the next `times`."""

    def __init__(self, path, act, skip=0, times=1):
        self.path, self.act, self.skip, self.times = path, act, skip, times
        self.hits = 0
        self._hit, self._go = threading.Event(), threading.Event()
        self._goes_on = True

    def takes(self):
        """Whether it applies to a request of its path; called under the proxy's lock."""
        if self.skip > 0:
            self.skip -= 1
            return False
        if self.hits >= self.times:
            return False
        self.hits += 1
        return True

    def reached(self):
        self._hit.set()

    def wait(self, patience=PATIENCE):
        """Waits until a request is where the rule says."""
        if not self._hit.wait(patience):
            raise AssertionError(f"waited in vain for a request to {self.path}")

    def pause(self):
        """Holds a request until it is released; says whether it goes on."""
        self._go.wait()
        return self._goes_on

    def release(self):
        """Lets what is held go on."""
        self._go.set()

    def abandon(self):
        """Ends the connections of what is held: it goes nowhere."""
        self._goes_on = False
        self._go.set()


class Request:
    """A request as it came, and the way to the SuperLink."""

    def __init__(self, port, method, path, headers, body):
        self.port, self.method, self.path = port, method, path
        self.headers, self.body = dict(headers), body

    def forward(self, path=None, body=None):
        """Asks the SuperLink; its status, headers and body."""
        body = self.body if body is None else body
        headers = {key: value for key, value in self.headers.items() if key.lower() != "content-length"}
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            link.request(self.method, path or self.path, body, headers)
            reply = link.getresponse()
            kept = [(key, value) for key, value in reply.getheaders() if key.lower() in ("date", "content-type")]
            return reply.status, kept, reply.read()
        finally:
            link.close()


# What a rule can do with a request. Each returns a reply, or None where the connection ends without one.


def hold(rule, request):
    """The request does not reach the SuperLink before it is released."""
    rule.reached()
    return request.forward() if rule.pause() else None


def hold_reply(rule, request):
    """The SuperLink has answered; the answer does not get back before it is released."""
    reply = request.forward()
    rule.reached()
    return reply if rule.pause() else None


def cut(rule, _request):
    """The request is lost."""
    rule.reached()
    return None


def lose_reply(rule, request):
    """The request is heard; its reply is lost."""
    request.forward()
    rule.reached()
    return None


def echo(rule, request):
    """The SuperLink hears the request twice; the party gets the first answer."""
    reply = request.forward()
    request.forward()
    rule.reached()
    return reply


def slow(seconds):
    """The reply is on its way for so long, a byte at a time: nobody's patience with silence ends."""

    def act(rule, request):
        status, headers, body = request.forward()
        rule.reached()
        return status, headers, body, seconds

    return act


class Proxy:
    """Listens on a port of its own, until it is closed."""

    def __init__(self, port):
        self.target, self.rules, self.seen, self.answers = int(port), [], [], []
        self._lock = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                request = Request(proxy.target, self.command, self.path, self.headers, body)
                try:
                    reply = proxy._reply(request)
                except (OSError, http.client.HTTPException):
                    reply = None
                if reply is None:
                    self.close_connection = True
                    return
                try:
                    self._answer(*reply)
                except OSError:
                    # Whoever asked was killed.
                    self.close_connection = True

            do_GET = do_POST

            def _answer(self, status, headers, body, seconds=0.0):
                self.send_response_only(status)
                for key, value in [*headers, ("content-length", str(len(body)))]:
                    self.send_header(key, value)
                if seconds:
                    self.flush_headers()
                    self.wfile.write(b"x-slow: ")
                    until = time.monotonic() + seconds
                    while time.monotonic() < until:
                        self.wfile.write(b".")
                        self.wfile.flush()
                        time.sleep(min(5.0, max(0.0, until - time.monotonic())))
                    self.wfile.write(b"\r\n")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_words):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_where):
                # A connection that was killed on the other side.
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.flags = ["--superlink", self.url]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def rule(self, path, act, **more):
        """From now on; the first of several rules that take a request decides."""
        rule = Rule(path, act, **more)
        with self._lock:
            self.rules.append(rule)
        return rule

    def count(self, path):
        """Requests to this path so far."""
        with self._lock:
            return sum(seen.endswith(path) for seen in self.seen)

    def answered(self, path, body):
        """How often this was the answer to that path."""
        with self._lock:
            return sum(seen.endswith(path) and found == body for seen, found in self.answers)

    def close(self):
        for rule in self.rules:
            rule.abandon()
        self.server.shutdown()
        self.server.server_close()

    def _reply(self, request):
        with self._lock:
            self.seen.append(request.path)
            rules = [rule for rule in self.rules if request.path.endswith(rule.path)]
            rule = next((rule for rule in rules if rule.takes()), None)
        reply = rule.act(rule, request) if rule else request.forward()
        if reply:
            with self._lock:
                self.answers.append((request.path, reply[2]))
        return reply

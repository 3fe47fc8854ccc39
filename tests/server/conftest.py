"""A real `strata serve` process for the black-box tests."""
import json
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time

import httpx
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_addoption(parser):
    parser.addoption("--strata", default=str(ROOT / "build/cpu/src/cli/strata"), help="the program to test")
    parser.addoption("--patience", type=float, default=1, help="how many times as long an answer may take, of a program slowed by a sanitizer")
    parser.addoption("--soak-requests", type=int, default=2000, help="requests of the soak test")
    parser.addoption("--eval-cases", type=int, default=576, help="conversations of the evaluation test")


def pytest_configure(config):
    Server.patience = config.getoption("--patience")


class Server:
    """One process on a free port. The address is read from what it says when it is ready."""

    patience = 1

    def __init__(self, program, *flags, port=0):
        self.process = subprocess.Popen([program, "serve", "--port", str(port), *map(str, flags)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.errors = []
        self.reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self.reader.start()
        line = self.process.stdout.readline()
        found = re.search(r"at (http://\S+:\d+)", line)
        if not found:
            self.process.wait(10)
            self.reader.join(5)
            raise RuntimeError(f"the server did not start: {line}{''.join(self.errors)}")
        self.url = found.group(1)
        self.http = httpx.Client(base_url=self.url, timeout=120 * self.patience)

    def metrics(self):
        out = {}
        for line in self.http.get("/metrics").text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    def idle(self, seconds=20):
        """Waits until nothing runs, waits or is held; the metrics then."""
        deadline = time.time() + seconds * self.patience
        while True:
            m = self.metrics()
            busy = {k: v for k, v in m.items() if v and k in (
                "strata_requests_running", "strata_requests_waiting", "strata_generations_in_flight",
                'strata_pages{state="used"}', 'strata_state_slots{state="used"}')}
            if not busy:
                return m
            assert time.time() < deadline, f"still in use: {busy}"
            time.sleep(0.02)

    def chat(self, text, **options):
        """One answer; text or a list of messages."""
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        reply = self.http.post("/v1/chat/completions", json={"messages": messages, "temperature": 0, "max_tokens": 200, **options})
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        self.http.close()
        return self.process.wait(60)


@pytest.fixture(scope="session")
def program(request):
    return request.config.getoption("--strata")


@pytest.fixture(scope="session")
def start(program):
    """Starts servers with flags of the test's own; all are stopped at the end."""
    servers = []

    def starter(*flags):
        servers.append(Server(program, *flags))
        return servers[-1]

    yield starter
    for server in servers:
        server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def server(start):
    """The one that most tests share."""
    return start("--max-sequences", 32)


@pytest.fixture(autouse=True)
def alive(request):
    yield
    if "server" in request.fixturenames:
        shared = request.getfixturevalue("server")
        assert shared.process.poll() is None, "".join(shared.errors)


def raw(server, body, path="/v1/chat/completions"):
    """A socket with a request under way."""
    host, port = server.url.removeprefix("http://").split(":")
    s = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return s


LONG = {"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": True, "max_tokens": 3000, "temperature": 0}


def tool_conversation():
    """Messages and tools of a held-out conversation that calls for a tool, and the call's text."""
    item = conversations("tool")[0]
    messages = [{k: v for k, v in m.items() if k != "tools"} for m in item["messages"]]
    return messages, item["messages"][0]["tools"], item["got"]


def conversations(task=None, name="eval.jsonl"):
    """The demo model's held-out conversations with the reference's answers."""
    with open(ROOT / "models/tiny-hybrid" / name) as file:
        lines = [json.loads(line) for line in file]
    return [line for line in lines if task in (None, line["task"])]

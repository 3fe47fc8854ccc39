"""A server under load: the evaluation at concurrency 32, a soak, and streams beside long prompts."""
import concurrent.futures
import hashlib
import json
import random
import selectors
import subprocess
import threading
import time

import httpx

from conftest import LONG, ROOT, conversations, raw, tool_conversation


def clients(server):
    """A function that returns this thread's HTTP client."""
    local = threading.local()

    def client():
        if not hasattr(local, "http"):
            local.http = httpx.Client(base_url=server.url, timeout=600)
        return local.http
    return client


def test_evaluation_equals_that_of_the_command(start, program, request):
    """The eval file at concurrency 32 with the prefix cache on gives the answers of `strata eval`, cold and warm."""
    limit = request.config.getoption("--eval-cases")
    cases = ROOT / "models/tiny-hybrid/eval.jsonl"
    want = json.loads(subprocess.run([program, "eval", "--cases", cases, "--json", "--batch", "32", "--limit", str(limit)],
                                     check=True, capture_output=True, text=True).stdout)
    items = conversations()[:limit]
    assert want["cases"] == len(items)
    server = start("--max-sequences", 32)
    client = clients(server)

    def answer(item):
        tools = next((m["tools"] for m in item["messages"] if "tools" in m), None)
        messages = [{k: v for k, v in m.items() if k != "tools"} for m in item["messages"]]
        prompt = client().post("/tokenize", json={"messages": messages, **({"tools": tools} if tools else {})}).json()["tokens"]
        assert len(prompt) == item["prompt_tokens"]
        reply = client().post("/v1/completions", json={"prompt": prompt, "max_tokens": 160, "temperature": 0, "skip_special_tokens": False})
        return reply.json()["choices"][0]["text"]

    digests = []
    for _ in range(2):
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(answer, items))
        digests.append(hashlib.sha256("".join(a + "\n" for a in answers).encode()).hexdigest())
    assert digests == [want["answers_sha256"]] * 2
    m = server.idle()
    assert m["strata_prefix_cache_hit_tokens_total"] > 0.3 * m["strata_prefix_cache_queried_tokens_total"]
    assert server.stop() == 0


def mixed_requests():
    """Distinct requests of every kind: short, long, with tools, of a shared prefix, sampled with a seed."""
    out = []
    for task in ("recall", "arithmetic", "think", "repeat", "sort", "count", "json", "hello", "reverse"):
        for item in conversations(task)[:4]:
            out.append({"messages": item["messages"], "max_tokens": 40, "temperature": 0})
    messages, tools, _ = tool_conversation()
    out.append({"messages": messages, "tools": tools, "max_tokens": 60, "temperature": 0})
    shared = conversations("haystack")[0]["messages"]
    for i in range(4):
        out.append({"messages": shared[:-1] + [{"role": "user", "content": shared[-1]["content"] + " " * i}], "max_tokens": 12, "temperature": 0})
    for seed in range(4):
        out.append({"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 24, "temperature": 1, "seed": seed})
    return out


def shown(reply):
    choice = reply["choices"][0]
    message = choice["message"]
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
    return message.get("content") or "", message.get("reasoning_content") or "", calls, choice["finish_reason"]


def shown_stream(text):
    content, reasoning, calls, finish = "", "", [], None
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        event = json.loads(line[6:])
        assert "error" not in event, event
        for choice in event["choices"]:
            delta = choice["delta"]
            content += delta.get("content") or ""
            reasoning += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                if call["index"] == len(calls):
                    calls.append((call["function"]["name"], ""))
                name, arguments = calls[call["index"]]
                calls[call["index"]] = (name, arguments + call["function"]["arguments"])
            finish = choice["finish_reason"] or finish
    return content, reasoning, calls, finish


def test_soak(start, request):
    """2,000 mixed requests at concurrency 32: every answer equals its solo run, with aborted and invalid requests among them;
    then nothing is in use."""
    requests = mixed_requests()
    alone = start("--no-prefix-cache", "--max-sequences", 1)
    solo = [shown(alone.http.post("/v1/chat/completions", json=r).json()) for r in requests]
    assert alone.stop() == 0
    assert len({str(s) for s in solo}) > 30
    server = start("--max-sequences", 32)
    client = clients(server)
    chance = random.Random(3)
    kinds = {"invalid": 0, "aborted": 0, "streamed": 0, "whole": 0}
    lock = threading.Lock()

    def one(item):
        which, luck = item
        body = requests[which]
        if luck < 0.05:
            kind = "invalid"
            assert client().post("/v1/chat/completions", json={**body, "temperature": -1}).status_code == 400
        elif luck < 0.15:
            kind = "aborted"
            s = raw(server, {**LONG, "stream": luck < 0.1})
            if luck < 0.1:
                s.recv(64)
            s.close()
        elif luck < 0.55:
            kind = "streamed"
            assert shown_stream(client().post("/v1/chat/completions", json={**body, "stream": True}).text) == solo[which], which
        else:
            kind = "whole"
            assert shown(client().post("/v1/chat/completions", json=body).json()) == solo[which], which
        with lock:
            kinds[kind] += 1

    count = request.config.getoption("--soak-requests")
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for done in [pool.submit(one, (chance.randrange(len(requests)), chance.random())) for _ in range(count)]:
            done.result()
    m = server.idle()
    assert m['strata_pages{state="used"}'] == m['strata_state_slots{state="used"}'] == 0
    assert sum(kinds.values()) == count and all(n > count / 50 for n in kinds.values()), kinds
    assert m['strata_requests_total{outcome="stop"}'] + m['strata_requests_total{outcome="length"}'] == kinds["streamed"] + kinds["whole"]
    assert server.stop() == 0


class Streams:
    """Running streams read by one thread; the time between two pieces of text of the same stream is a gap."""

    def __init__(self, server, count):
        self.selector = selectors.DefaultSelector()
        self.sockets = [raw(server, {**LONG, "max_tokens": 30000, "stream": True}) for _ in range(count)]
        self.last = {}
        for s in self.sockets:
            s.setblocking(False)
            self.selector.register(s, selectors.EVENT_READ)

    def gaps(self, seconds):
        """The gaps that end within the next `seconds`."""
        out, end = [], time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            for key, _ in self.selector.select(end - now):
                data = key.fileobj.recv(1 << 20)
                now = time.perf_counter()
                assert data, "a stream has ended"
                if b'"content":"' not in data:
                    continue
                if key.fd in self.last:
                    out.append(now - self.last[key.fd])
                self.last[key.fd] = now
        return out

    def close(self):
        for s in self.sockets:
            s.close()
        self.selector.close()


def test_streams_go_on_while_long_prompts_arrive(start):
    """Case 41: 8 decoders, prompts of 3,000 to 6,000 tokens at 6 a second for 60 s: no stream's gap exceeds 10 times that of an
    idle server. The machine may have other work: quiet and loaded times alternate, each loaded one is held against the quiet ones
    around it, and only so many gaps may be over the limit as the other work explains: twice the quiet times' rate, and one step."""
    server = start()
    line = "The room of Xena is 3160. "
    each = len(server.http.post("/tokenize", json={"prompt": line * 10}).json()["tokens"]) / 10
    chance = random.Random(41)
    streams = Streams(server, 8)
    streams.gaps(1)
    quiet, busy = [streams.gaps(2)], []
    for _ in range(6):
        prompts, gaps = [], []
        for _ in range(60):
            text = f"{chance.random()} " + line * int(chance.uniform(3000, 6000) / each)
            prompts.append(raw(server, {"messages": [{"role": "user", "content": text}], "max_tokens": 2, "temperature": 0}))
            gaps += streams.gaps(1 / 6)
        busy.append(gaps)
        for s in prompts:  # what still waits is given up
            s.close()
        deadline = time.time() + 60
        while server.metrics()["strata_generations_in_flight"] > 8:
            assert time.time() < deadline
            streams.gaps(0.05)
        quiet.append(streams.gaps(2))
    streams.close()
    prefilled = server.idle(60)["strata_computed_tokens_total"] - sum(map(len, quiet + busy))
    median = lambda gaps: sorted(gaps)[len(gaps) // 2]
    over_quiet = over_busy = 0
    ratios = []
    for i, gaps in enumerate(busy):
        usual = max(median(quiet[i]), median(quiet[i + 1]))
        ratios += [g / usual for g in gaps]
        over_busy += sum(g > 10 * usual for g in gaps)
        over_quiet += sum(g > 10 * usual for g in quiet[i + 1])
    print(f"quiet gap {median(sum(quiet, [])) * 1e3:.2f} ms; loaded: median {median(ratios):.2f} x, longest {max(ratios):.2f} x; over 10 x: "
          f"{over_busy} of {len(ratios)}, in quiet times {over_quiet} of {sum(map(len, quiet))}; {prefilled:.0f} prefill rows")
    assert median(ratios) > 1.5, "the prompts did not load the server"
    assert over_busy <= 8 + 2 * 5 * over_quiet, "streams stall"

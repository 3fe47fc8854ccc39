"""What a server meets in the wild: clients that leave, floods, a soak, a kill and a restart."""
import concurrent.futures
import json
import random
import signal
import socket
import threading
import time

import httpx
import pytest

from conftest import conversations, tool_conversation


def raw(server, body, path="/v1/chat/completions"):
    """A socket with a request under way."""
    host, port = server.url.removeprefix("http://").split(":")
    s = socket.create_connection((host, int(port)))
    data = json.dumps(body).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(data)) + data)
    return s


LONG = {"messages": [{"role": "user", "content": "Tell me a story."}], "ignore_eos": True, "max_tokens": 3000, "temperature": 0}


def test_leaving_frees_everything(server):
    server.idle()
    aborted = server.metrics().get('strata_requests_total{outcome="aborted"}', 0)
    streaming = raw(server, {**LONG, "stream": True})
    whole, four = raw(server, LONG), raw(server, {**LONG, "n": 4})
    assert b"data: " in streaming.recv(4096)
    deadline = time.time() + 20
    while server.metrics()["strata_generations_in_flight"] < 6:
        assert time.time() < deadline
        time.sleep(0.01)
    time.sleep(0.2)
    for s in (streaming, whole, four):
        s.close()
    assert server.idle()['strata_requests_total{outcome="aborted"}'] == aborted + 6


def test_leaving_while_queued(start):
    server = start("--max-sequences", 1)
    sockets = [raw(server, {**LONG, "stream": True}) for _ in range(3)]
    deadline = time.time() + 20
    while server.metrics()["strata_requests_waiting"] < 2:
        assert time.time() < deadline
        time.sleep(0.01)
    sockets[1].close()
    sockets[2].close()
    deadline = time.time() + 20
    while server.metrics()["strata_requests_waiting"] > 0:
        assert time.time() < deadline
        time.sleep(0.01)
    sockets[0].close()
    server.idle()


def test_garbage_harms_nobody(server):
    good = server.chat("What is 12 + 30?")["choices"][0]["message"]["content"]
    host, port = server.url.removeprefix("http://").split(":")
    chance = random.Random(1)
    held = []
    for i in range(300):
        s = socket.create_connection((host, int(port)))
        try:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" * (i % 2) + chance.randbytes(chance.randrange(2000)))
        except OSError:
            pass
        held.append(s) if i % 3 == 0 else s.close()
    bombs = [b"[" * 10_000 + b"]" * 10_000, b'{"messages": ' * 10_000, b"\xff" * 100, b"{" + b" " * 100_000, b'"' * 999]
    for bomb in bombs:
        reply = server.http.post("/v1/chat/completions", content=bomb)
        assert reply.status_code == 400 and reply.json()["error"]["type"] == "invalid_request_error"
    assert server.chat("What is 12 + 30?")["choices"][0]["message"]["content"] == good
    for s in held:
        s.close()
    server.idle()


def test_bodies_over_the_limit(start):
    server = start("--max-body", "64KiB")
    reply = server.http.post("/v1/chat/completions", content=b"x" * 100_000)
    assert reply.status_code == 413 and reply.json()["error"]["message"]
    assert server.chat("Hello!")["choices"]


def test_keys(start, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# for the tests\nsecret-one\n\nsecret-two\n")
    server = start("--api-key-file", keys)
    assert server.http.get("/v1/models").status_code == 401
    assert server.http.get("/v1/models", headers={"Authorization": "Bearer secret"}).status_code == 401
    assert server.http.get("/v1/models", headers={"Authorization": "Bearer secret-two"}).status_code == 200
    assert server.http.get("/v1/models", headers={"X-Api-Key": "secret-one"}).status_code == 200
    assert server.http.get("/health").status_code == 200


def test_sigterm_finishes_what_runs(start):
    server = start()
    result = {}

    def ask():
        result["reply"] = httpx.post(server.url + "/v1/chat/completions", json={**LONG, "max_tokens": 60}, timeout=60)

    thread = threading.Thread(target=ask)
    thread.start()
    deadline = time.time() + 20
    while server.metrics()["strata_requests_running"] < 1:
        assert time.time() < deadline
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert result["reply"].json()["usage"]["completion_tokens"] == 60
    assert server.process.wait(30) == 0


def test_kill_and_restart(program):
    from conftest import Server
    first = Server(program)
    port = first.url.rsplit(":", 1)[1]
    answer = first.chat("What is 12 + 30?")["choices"][0]["message"]["content"]
    sockets = [raw(first, LONG) for _ in range(4)]
    first.stop(signal.SIGKILL)
    again = Server(program, port=port)
    assert again.chat("What is 12 + 30?")["choices"][0]["message"]["content"] == answer
    assert again.stop() == 0
    for s in sockets:
        s.close()


def test_conversation_resent_computes_only_what_is_new(server):
    messages, known = [], 0
    for turn in range(8):
        messages.append({"role": "user", "content": conversations("arithmetic")[turn]["messages"][-1]["content"]})
        body = server.chat(messages, max_tokens=40)
        usage = body["usage"]
        computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        if turn:
            assert computed <= usage["prompt_tokens"] - known + 64, f"turn {turn}: computed {computed}"
        known = usage["prompt_tokens"] + usage["completion_tokens"]
        messages.append({"role": "assistant", "content": body["choices"][0]["message"]["content"]})


def test_prompts_around_page_boundaries_warm_as_cold(start):
    server = start()
    words = server.http.post("/tokenize", json={"prompt": "The room of Xena is 3160. " * 40}).json()["tokens"]
    for k in range(1, 5):
        for size in (64 * k - 1, 64 * k, 64 * k + 1):
            prompt = [words[(k + i) % len(words)] for i in range(size)]
            ask = lambda: server.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 1}).json()
            cold, warm = ask(), ask()
            assert warm["choices"] == cold["choices"], size
    server.idle()


def test_sampling_off_values(server):
    story = conversations("story")[0]["messages"][:1]
    for top_k in ({}, {"top_k": 0}, {"top_k": -1}):
        reply = server.chat(story, temperature=1, max_tokens=8, n=20, **top_k)
        assert len({c["message"]["content"] for c in reply["choices"]}) > 5
    greedy = server.chat(story, max_tokens=24)["choices"][0]["message"]["content"]
    assert server.chat(story, temperature=1, top_p=0, max_tokens=24)["choices"][0]["message"]["content"] == greedy


def mixed_requests():
    """Distinct requests of every kind; each is (path, body)."""
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
    """Every answer equals its solo run, with aborted and invalid requests among them; then nothing is in use."""
    requests = mixed_requests()
    solo_server = start("--no-prefix-cache")
    solo = [shown(solo_server.http.post("/v1/chat/completions", json=r).json()) for r in requests]
    solo_server.stop()
    server = start("--max-sequences", 32)
    count = request.config.getoption("--soak-requests")
    chance = random.Random(3)
    plan = [(chance.randrange(len(requests)), chance.random()) for _ in range(count)]
    clients = threading.local()
    end = time.time() + request.config.getoption("--soak-seconds")
    outcomes = []

    def one(item):
        which, luck = item
        if time.time() > end:
            return
        if not hasattr(clients, "http"):
            clients.http = httpx.Client(base_url=server.url, timeout=120)
        body = requests[which]
        if luck < 0.05:
            assert clients.http.post("/v1/chat/completions", json={**body, "temperature": -1}).status_code == 400
        elif luck < 0.15:
            s = raw(server, {**LONG, "stream": True})
            s.recv(64)
            s.close()
        elif luck < 0.55:
            reply = clients.http.post("/v1/chat/completions", json={**body, "stream": True})
            assert shown_stream(reply.text) == solo[which], which
        else:
            assert shown(clients.http.post("/v1/chat/completions", json=body).json()) == solo[which], which
        outcomes.append(which)

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        for done in [pool.submit(one, item) for item in plan]:
            done.result()
    m = server.idle()
    assert m['strata_pages{state="used"}'] == 0
    assert len(outcomes) >= min(count, 100)
    print(f"{len(outcomes)} requests, each as its solo run")
    assert server.stop() == 0


def test_streams_go_on_while_long_prompts_arrive(start):
    """8 decoders; long prompts arrive; the gaps between tokens (99 % of them: the machine has other work too) stay below
    10 times those of an idle server. The step's token budget bounds them."""
    server = start("--max-sequences", 32, "--max-batch-tokens", 128)
    long_prompt = "The room of Xena is 3160. " * 300

    def gaps(stop):
        out, last = [], None
        with httpx.Client(base_url=server.url, timeout=120) as http:
            with http.stream("POST", "/v1/chat/completions", json={**LONG, "max_tokens": 2000, "stream": True}) as reply:
                for line in reply.iter_lines():
                    if '"content":"' in line:
                        now = time.perf_counter()
                        if last is not None:
                            out.append(now - last)
                        last = now
                    if stop.is_set():
                        break
        return out

    def run(disturb, seconds):
        stop = threading.Event()
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            decoders = [pool.submit(gaps, stop) for _ in range(8)]
            end = time.time() + seconds
            n = 0
            while time.time() < end:
                time.sleep(1 / 6)
                if disturb and n < 10:
                    n += 1
                    pool.submit(httpx.post, server.url + "/v1/chat/completions", timeout=120, json={
                        "messages": [{"role": "user", "content": f"{n} " + long_prompt}], "max_tokens": 2})
            stop.set()
            return sorted(g for d in decoders for g in d.result())

    idle = run(False, 3)
    busy = run(True, 6)
    server.idle(60)
    slow, usual = busy[int(0.99 * (len(busy) - 1))], idle[len(idle) // 2]
    assert slow < 10 * max(usual, 0.02), (slow, usual)


def test_the_page_and_the_metrics_are_there(server):
    page = server.http.get("/")
    assert page.status_code == 200 and "Strata" in page.text and "default-src 'none'" in page.headers["content-security-policy"]
    server.chat("Hello!")
    text = server.http.get("/metrics").text
    for name in ("requests_total", "time_to_first_token_seconds_bucket", "inter_token_seconds_count", "queue_seconds_sum", "pages{",
                 "state_slots{", "prefix_cache_queried_tokens_total", "prefix_cache_misses_total", "preemptions_total", "step_part_seconds_total{"):
        assert "strata_" + name in text, name
    assert server.http.head("/health").status_code == 200
    assert server.http.get("/nothing").status_code == 404
    assert server.http.get("/v1/chat/completions").status_code == 405

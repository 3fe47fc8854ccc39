"""What a server meets in the wild: clients that leave, floods, slow clients, a kill and a restart."""
import json
import random
import signal
import socket
import threading
import time

import httpx
import pytest

from conftest import LONG, Server, conversations, raw, tool_conversation


def wait_for(server, reached):
    """Waits until the metrics are as they should be; the metrics then."""
    deadline = time.time() + 60 * server.patience
    while not reached(m := server.metrics()):
        assert time.time() < deadline, m
        time.sleep(0.01)
    return m


def test_leaving_frees_everything(server):
    """Case 39: closed after a chunk, after 200 ms without streaming, with n = 4."""
    server.idle()
    aborted = server.metrics().get('strata_requests_total{outcome="aborted"}', 0)
    streaming = raw(server, {**LONG, "stream": True})
    whole, four = raw(server, LONG), raw(server, {**LONG, "n": 4})
    assert b"data: " in streaming.recv(4096)
    wait_for(server, lambda m: m["strata_generations_in_flight"] == 6)
    time.sleep(0.2)
    for s in (streaming, whole, four):
        s.close()
    assert server.idle()['strata_requests_total{outcome="aborted"}'] == aborted + 6


def test_leaving_while_queued(start):
    """Case 39: closed while it waits."""
    server = start("--max-sequences", 1)
    sockets = [raw(server, {**LONG, "stream": True}) for _ in range(3)]
    wait_for(server, lambda m: m["strata_requests_waiting"] == 2)
    sockets[1].close()
    sockets[2].close()
    assert wait_for(server, lambda m: m["strata_requests_waiting"] == 0)["strata_requests_running"] == 1
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


def test_slow_clients_hold_nothing(start):
    """Headers and bodies that do not come, and an answer that is not read, end the connection; what they held is free."""
    server = start("--header-seconds", 1, "--body-seconds", 1, "--write-seconds", 1)
    host, port = server.url.removeprefix("http://").split(":")
    silent, half_header, half_body = (socket.create_connection((host, int(port))) for _ in range(3))
    half_header.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHos")
    half_body.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    deaf = []
    for _ in range(4):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)  # the kernel must not take the answer in
        s.connect((host, int(port)))
        body = json.dumps({**LONG, "stream": True, "n": 8, "max_tokens": 30000}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        deaf.append(s)
    wait_for(server, lambda m: m["strata_generations_in_flight"] == 32)
    for s in (silent, half_header, half_body):
        s.settimeout(60)
        while s.recv(4096):
            pass
        s.close()
    assert server.chat("Hello!")["choices"]
    m = wait_for(server, lambda m: m["strata_http_cut_off_total"] == 4)
    assert server.idle(60)["strata_generations_in_flight"] == 0
    for s in deaf:
        s.close()


def test_half_open_connections_leave_room_for_others(start):
    """Twice as many connections as may be open, all silent: they are refused or time out, and then the server answers."""
    server = start("--max-connections", 64, "--header-seconds", 2)
    server.http.close()
    host, port = server.url.removeprefix("http://").split(":")
    held = [socket.create_connection((host, int(port))) for _ in range(128)]
    deadline = time.time() + 60
    while True:
        try:
            reply = httpx.get(server.url + "/health", timeout=10)
            if reply.status_code == 200:
                break
            assert reply.status_code == 503
        except httpx.TransportError:
            pass
        assert time.time() < deadline
        time.sleep(0.1)
    for s in held:
        s.close()


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
    wait_for(server, lambda m: m["strata_requests_running"] == 1)
    server.process.send_signal(signal.SIGTERM)
    thread.join()
    assert result["reply"].json()["usage"]["completion_tokens"] == 60
    assert server.process.wait(30) == 0


def test_kill_and_restart(program, tmp_path):
    """Killed in the middle of answers; the next one takes the same port and the same cache file, and answers as before."""
    flags = ("--cache-file", tmp_path / "cache")
    first = Server(program, *flags)
    port = first.url.rsplit(":", 1)[1]
    answer = first.chat("What is 12 + 30?")["choices"][0]["message"]["content"]
    sockets = [raw(first, {**LONG, "stream": i % 2 == 0}) for i in range(4)]
    assert b"data: " in sockets[0].recv(4096)
    wait_for(first, lambda m: m["strata_requests_running"] == 4)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    again = Server(program, *flags, port=port)
    again.idle()
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


def test_cache_and_drafts_change_no_answer(start):
    """Case 1: a tool conversation of three turns, each sent twice, and a needle in a prompt of more than 3 pages, with and without
    the prefix cache and drafts."""
    messages, tools, _ = tool_conversation()
    needle = conversations("haystack")[0]
    assert needle["prompt_tokens"] > 3 * 64

    def talk(server):
        said, shown = list(messages), []
        for turn in ("It says 21 degrees.", "And what of tomorrow?", None):
            options = {"tools": tools, "max_tokens": 80}
            first, again = (server.chat(said, **options)["choices"][0]["message"] for _ in range(2))
            for message in (first, again):
                for call in message.get("tool_calls", []):
                    call.pop("id")
            assert first == again  # warm as cold
            shown.append(first)
            said.append({"role": "assistant", "content": first["content"] or "", **({"tool_calls": first["tool_calls"]} if "tool_calls" in first else {})})
            if turn:
                said.append({"role": "user", "content": turn})
        for _ in range(2):
            shown.append(server.chat(needle["messages"], max_tokens=40)["choices"][0]["message"]["content"])
        m = server.idle()
        assert server.stop() == 0
        return shown, m

    results = {}
    for cache in ([], ["--no-prefix-cache"]):
        for drafts in ([], ["--speculate", "mtp", "--draft-tokens", "3"]):
            shown, m = talk(start(*cache, *drafts))
            assert (m["strata_prefix_cache_hit_tokens_total"] > 0) == (not cache)
            assert (m["strata_drafted_tokens_total"] > 0) == bool(drafts)
            results[" ".join(cache + drafts)] = shown
    assert all(shown == results[""] for shown in results.values()), results
    assert results[""][-1] == needle["got"]


def test_a_stop_string_inside_accepted_drafts(start):
    """Case 38: text, logprobs and usage end before the stop string, with n-gram drafts as without."""
    case = max(conversations("repeat"), key=lambda c: len(c["got"].split()) if c["ok"] else 0)
    words = case["got"].split()
    stop = " ".join(words[-4:-1])
    results = []
    for drafts in ([], ["--speculate", "ngram", "--draft-tokens", "7"]):
        server = start(*drafts)
        reply = server.chat(case["messages"], max_tokens=120, stop=stop, logprobs=True, top_logprobs=2)
        choice, usage = reply["choices"][0], reply["usage"]
        tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
        assert choice["message"]["content"] == case["got"][:case["got"].index(stop)]
        assert choice["finish_reason"] == "stop"
        assert len(tokens) == usage["completion_tokens"]
        assert choice["message"]["content"].startswith("".join(tokens))
        accepted = server.idle()["strata_accepted_tokens_total"]
        assert accepted > 5 if drafts else accepted == 0
        results.append(choice)
    assert results[0] == results[1]


def test_prompts_around_page_boundaries_warm_as_cold(start):
    """Case 6."""
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
    """Case 42."""
    story = conversations("story")[0]["messages"][:1]
    for top_k in ({}, {"top_k": 0}, {"top_k": -1}):
        reply = server.chat(story, temperature=1, max_tokens=8, n=20, **top_k)
        assert len({c["message"]["content"] for c in reply["choices"]}) > 5
    greedy = server.chat(story, max_tokens=24)["choices"][0]["message"]["content"]
    assert server.chat(story, temperature=1, top_p=0, max_tokens=24)["choices"][0]["message"]["content"] == greedy


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

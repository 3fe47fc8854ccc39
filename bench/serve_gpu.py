#!/usr/bin/env python3
"""The whole server under load, with dummy weights of a published shape: tokens a second, times to the first token and a token,
where the steps' time goes, and how busy the GPU is. A server for each way of drafting, then one load after the other.

usage: bench/serve_gpu.py [--loads 1024/128@1,16,64 8192/1024@1,16:20 8192/1024@256:40+60] [--ways none mtp:3] [--seconds 30] [--json FILE]

Every load ends after --seconds, or those named behind it, with what it has by then ("cut" in the table: answers that were given
up). Rates and shares are of the server's own counters from the beginning of a load to its end, so that answers that were cut count
in them; of two numbers of seconds the first are not counted, so that the rest shows what goes on for hours.
"""
import argparse
import json
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("schedule", "batch", "forward", "sample", "draft")
VOCABULARY = 1000  # prompts' ids are below it unless --vocabulary says otherwise


def parse_loads(texts, seconds):
    """"8192/1024@1,16:20" -> (8192, 1024, 1, 0, 20), (8192, 1024, 16, 0, 20); "8192/1024@256:40+60" -> (8192, 1024, 256, 40, 60)"""
    loads = []
    for text in texts:
        found = re.fullmatch(r"(\d+)/(\d+)@(\d+(?:,\d+)*)(?::(?:(\d+)\+)?(\d+))?", text)
        if not found:
            sys.exit(f"serve_gpu: a load is PROMPT/OUTPUT@CONCURRENCY[,CONCURRENCY...][:[UNCOUNTED+]SECONDS], not '{text}'")
        loads += [(int(found[1]), int(found[2]), int(n), float(found[4] or 0), float(found[5] or seconds)) for n in found[3].split(",")]
    return loads


class Server:
    def __init__(self, options, way):
        drafter, _, drafts = way.partition(":")
        command = [options.strata, "serve", "--port", "0", "--backend", options.backend, "--max-sequences", str(options.max_sequences),
                   "--max-in-flight", "8192", "--max-connections", "8192", "--drain-seconds", "1"]
        command += ["--model", options.model, "--weights", "dummy"] if options.model else ["--shape", options.shape]
        command += ["--dtype", options.dtype, *options.flags]
        if drafter != "none":
            command += ["--speculate", drafter, "--simulate-acceptance", str(options.acceptance)]
            command += ["--draft-tokens", drafts] if drafts else []
        self.log = tempfile.TemporaryFile("w+")
        start = time.time()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], options.start_seconds)
        found = re.search(r"http://\S+", self.process.stdout.readline()) if ready else None
        if not found:
            self.stop()
            raise RuntimeError(f"{' '.join(command)} did not start in {options.start_seconds:.0f} s: {self.errors()}")
        self.url = found[0]
        print(f"\n{' '.join(command)}\nready after {time.time() - start:.1f} s", flush=True)

    def errors(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def metrics(self):
        text = urllib.request.urlopen(self.url + "/metrics", timeout=10).read().decode()
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("strata_"): float(value) for name, value in lines}

    def wait_until_idle(self, seconds=20):
        end = time.time() + seconds
        while self.metrics()["generations_in_flight"] + self.metrics()["requests_running"] > 0 and time.time() < end:
            time.sleep(0.05)
        time.sleep(0.05)  # metrics are as old as 20 ms


def run_load(options, server, prompt, output, concurrency, uncounted, seconds):
    requests = max(options.least_requests, round(options.rounds * concurrency))
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        command = [options.strata, "bench", "--url", server.url, "--requests", requests, "--concurrency", concurrency, "--seconds", uncounted + seconds,
                   "--prompt-tokens", prompt, "--vocabulary", options.vocabulary, "--output-tokens", output, "--json-file", report.name,
                   "--load-seed", 1 + 1000 * prompt + concurrency]
        server.wait_until_idle()
        bench = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            time.sleep(uncounted)
            before, start = server.metrics(), time.time()
            text, _ = bench.communicate(timeout=seconds + 30)
        except subprocess.TimeoutExpired:
            text = "the load did not end in time"
        finally:
            bench.kill()
            bench.wait()
        wall, after = time.time() - start, server.metrics()
        try:
            clients = json.load(report)
        except json.JSONDecodeError:
            clients = {"ok": 0, "given_up": 0, "requests": requests, "errors": {text.strip()[-300:] or "no report": 1}}
    wall = wall if uncounted else clients.get("seconds") or wall
    return summary(prompt, output, concurrency, clients, wall, lambda name: after.get(name, 0) - before.get(name, 0))


def summary(prompt, output, concurrency, clients, wall, gone):
    steps, tokens = gone("steps_total"), gone("output_tokens_total")
    parts = {p: gone(f'step_part_seconds_total{{part="{p}"}}') for p in PARTS}
    device = {p: gone(f'device_seconds_total{{part="{p}"}}') for p in ("forward", "draft")}
    busy = sum(device.values())
    p50 = lambda name: clients.get(name, {}).get("p50") or None
    mean = lambda name: 1000 * gone(name + "_sum") / gone(name + "_count") if gone(name + "_count") else None
    return {
        "prompt": prompt, "output": output, "concurrency": concurrency, "seconds": wall,
        "ok": clients["ok"], "cut": clients["given_up"], "errors": clients["errors"],
        "output_tokens_per_second": tokens / wall, "prompt_tokens_per_second": gone("prompt_tokens_total") / wall,
        "ttft_ms_p50": p50("ttft_ms"), "tpot_ms_p50": p50("per_output_token_ms"), "token_ms_mean": mean("inter_token_seconds"),
        "queue_ms_mean": mean("queue_seconds"),
        "steps": steps, "step_ms": 1000 * gone("step_seconds_sum") / steps if steps else None, "preemptions": gone("preemptions_total"),
        "accepted_share": gone("accepted_tokens_total") / gone("drafted_tokens_total") if gone("drafted_tokens_total") else None,
        "share_of_time": {**{p: t / wall for p, t in parts.items()}, "outside steps": 1 - gone("step_seconds_sum") / wall},
        "device_share": {p: t / wall for p, t in device.items()},
        "device_busy": busy / wall if busy else None,
        "gap_us_a_step": 1e6 * (wall - busy) / steps if busy and steps else None,
    }


COLUMNS = "| load | tokens/s | TTFT p50 ms | TPOT p50 ms | step ms | forward | draft | other parts | GPU busy | gap us a step | answers |"


def row(r):
    show = lambda x, form: "-" if x is None else format(x, form)
    share = r["share_of_time"]
    rest = " ".join(f"{p} {100 * share[p]:.1f}" for p in ("schedule", "batch", "sample", "outside steps"))
    # Where every answer was cut no client knows it; the server does, in the mean.
    token = show(r["tpot_ms_p50"], ".2f") if r["tpot_ms_p50"] else show(r["token_ms_mean"], ".2f") + " (mean)"
    answers = f"{r['ok']}" + (f", {r['cut']} cut" if r["cut"] else "") + (f", {sum(r['errors'].values())} failed" if r["errors"] else "")
    return (f"| {r['prompt']}/{r['output']} at {r['concurrency']} | {r['output_tokens_per_second']:.0f} | {show(r['ttft_ms_p50'], '.0f')} | "
            f"{token} | {show(r['step_ms'], '.2f')} | {100 * share['forward']:.1f} % | {100 * share['draft']:.1f} % | {rest} | "
            f"{show(r['device_busy'], '.1%')} | {show(r['gap_us_a_step'], '.0f')} | {answers} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--strata", default=str(SOURCE / "build/cuda/src/cli/strata"))
    parser.add_argument("--shape", default="qwen3.5-35b-a3b")
    parser.add_argument("--model", help="a folder with a config.json instead of --shape")
    parser.add_argument("--dtype", default="fp8")
    parser.add_argument("--backend", default="cuda")
    parser.add_argument("--loads", nargs="+", default=["1024/128@1,16,64,256,1024", "8192/1024@1,16,64,256,1024"])
    parser.add_argument("--ways", nargs="+", default=["none", "mtp:3"], help="of drafting: none, mtp, mtp:K, ngram:K")
    parser.add_argument("--acceptance", type=float, default=0.8, help="of each draft, by chance")
    parser.add_argument("--seconds", type=float, default=60, help="of a load at most")
    parser.add_argument("--rounds", type=float, default=3, help="requests of a load for each one in flight")
    parser.add_argument("--least-requests", type=int, default=3)
    parser.add_argument("--max-sequences", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=VOCABULARY)
    parser.add_argument("--start-seconds", type=float, default=120)
    parser.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="last: more flags of the server")
    parser.add_argument("--json", help="a file for all numbers, written anew after every load")
    options = parser.parse_args()
    loads, results = parse_loads(options.loads, options.seconds), []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection takes a file
    failed = False
    for way in options.ways:
        server = None
        try:
            server = Server(options, way)
            run_load(options, server, 64, 4, 1, 0, options.seconds)  # what only the first requests pay
            print(f"{COLUMNS}\n{'|---' * (COLUMNS.count('|') - 1)}|", flush=True)
            for load in loads:
                result = {"way": way, "shape": options.shape if not options.model else options.model, "dtype": options.dtype,
                          "acceptance": options.acceptance, **run_load(options, server, *load)}
                results.append(result)
                print(row(result), flush=True)
                if result["errors"]:
                    failed = True
                    print(f"failed: {result['errors']}", flush=True)
                if options.json:
                    pathlib.Path(options.json).write_text(json.dumps(results, indent=1) + "\n")
        except (OSError, RuntimeError) as error:  # a server that ended: the next way has its own
            failed = True
            print(f"{way}: {error}\n{server.errors() if server else ''}", flush=True)
        finally:
            if server:
                server.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Time to the first token of a long prompt, cold and from the prefix cache, side by side against a server of its own.

usage: bench/prefix_ttft.py [--strata build/cpu/src/cli/strata] [--rounds 7]
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import time
import urllib.request

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=str(SOURCE / "build/cpu/src/cli/strata"))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    server = subprocess.Popen([options.strata, "serve", "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        address = re.search(r"http://\S+", server.stdout.readline())[0]

        def first_token(prompt):
            body = json.dumps({"prompt": prompt, "max_tokens": 1, "temperature": 0}).encode()
            request = urllib.request.Request(address + "/v1/completions", body, {"Content-Type": "application/json"})
            start = time.time()
            usage = json.load(urllib.request.urlopen(request))["usage"]
            return time.time() - start, usage

        times = {"cold": [], "hit": []}
        for i in range(options.rounds):
            rng = random.Random(i)
            prompt = " ".join(f"The room of Ada is {rng.randint(1000, 9999)}." for _ in range(140))
            for way, text in (("cold", prompt), ("hit", prompt + " What?")):
                seconds, usage = first_token(text)
                times[way].append(seconds)
        cold, hit = (statistics.median(times[way]) for way in ("cold", "hit"))
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        print(f"{usage['prompt_tokens']} tokens, {cached} of them cached on a hit: cold {cold * 1e3:.1f} ms, hit {hit * 1e3:.1f} ms, ratio {hit / cold:.3f}")
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()

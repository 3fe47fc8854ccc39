#!/usr/bin/env python3
"""Decoding with and without drafts, side by side: tokens a second on the evaluation's tasks, interleaved, medians, ratios.

One at a time by `strata run --stats` (decoding only), many at once by `strata eval --batch` (prompts included).

usage: bench/speculation.py [--strata build/cpu/src/cli/strata] [--rounds 5] [--prompts 8] [--batch 16] [--tasks story repeat]
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def flags_of(way):
    drafter, _, k = way.partition(":")
    return ["--speculate", drafter] + (["--draft-tokens", k] if k else [])


def table(title, rates):
    """rates: of each way, in the same order of turns."""
    print(f"\n{title}\n\n| drafts | tokens/s | ratio |\n|---|---|---|")
    for way, of_way in rates.items():
        ratio = statistics.median(a / b for a, b in zip(of_way, rates["none"]))
        print(f"| {way} | {statistics.median(of_way):.0f} | {ratio:.2f} |", flush=True)


def run(options, cases):
    """`strata run` on the first prompts of a task: (what it wrote, tokens a second after the first one)."""
    def once(case, way):
        *system, user = [m["content"] for m in case["messages"]]
        command = [options.strata, "run", "--stats", *flags_of(way), *(["--system", system[0]] if system else []), user]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout, float(re.search(r"tokens at ([\d.]+) tokens/s", done.stderr)[1])

    for task in options.tasks:
        rates = {way: [] for way in options.ways}
        chosen = [c for c in cases if c["task"] == task and len(c["messages"]) <= 2][:options.prompts]
        for _ in range(options.rounds):
            for case in chosen:
                texts = set()
                for way in options.ways:
                    text, rate = once(case, way)
                    rates[way].append(rate)
                    texts.add(text)
                assert len(texts) == 1, "answers differ"
        table(f"`strata run`, {task} ({len(chosen)} prompts)", rates)


def evaluate(options, cases):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(c) + "\n" for c in cases if c["task"] in options.tasks)
        file.flush()
        for batch in options.batch:
            rates, digests = {way: [] for way in options.ways}, set()
            for _ in range(options.rounds):
                for way in options.ways:
                    command = [options.strata, "eval", "--cases", file.name, "--json", "--batch", str(batch), *flags_of(way)]
                    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                    rates[way].append(result["output_tokens"] / result["seconds"])
                    digests.add(result["answers_sha256"])
            assert len(digests) == 1, "answers differ"
            table(f"`strata eval`, {' and '.join(options.tasks)}, {batch} at once, prompts included", rates)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=str(SOURCE / "build/cpu/src/cli/strata"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=8, help="of each task for strata run; 0: skip it")
    parser.add_argument("--batch", type=int, nargs="*", default=[16])
    parser.add_argument("--tasks", nargs="+", default=["story", "repeat"])
    parser.add_argument("--ways", nargs="+", default=["none", "mtp:1", "mtp:2", "mtp:3", "mtp:auto", "ngram:auto"], help="none comes first")
    options = parser.parse_args()
    cases = [json.loads(line) for line in (SOURCE / "models/tiny-hybrid/eval.jsonl").read_text().splitlines()]
    if options.prompts:
        run(options, cases)
    evaluate(options, cases)


if __name__ == "__main__":
    main()

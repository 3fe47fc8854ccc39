#!/usr/bin/env python3
"""Decoding with and without drafts, side by side: tokens a second over the evaluation's tasks, interleaved, medians, ratios.

usage: bench/speculation.py [--strata build/cpu/src/cli/strata] [--rounds 5] [--batch 1 16] [--tasks story repeat]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strata", default=str(SOURCE / "build/cpu/src/cli/strata"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--tasks", nargs="+", default=["story", "repeat"])
    parser.add_argument("--ways", nargs="+", default=["none", "mtp:1", "mtp:2", "mtp:3", "mtp:auto", "ngram:auto"])
    options = parser.parse_args()
    lines = [l for l in (SOURCE / "models/tiny-hybrid/eval.jsonl").read_text().splitlines() if json.loads(l)["task"] in options.tasks]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as cases:
        cases.write("\n".join(lines) + "\n")
        cases.flush()
        for batch in options.batch:
            rates, accepted, digests = {}, {}, set()
            for _ in range(options.rounds):
                for way in options.ways:
                    drafter, _, k = way.partition(":")
                    command = [options.strata, "eval", "--cases", cases.name, "--json", "--batch", str(batch), "--speculate", drafter]
                    result = json.loads(subprocess.run(command + (["--draft-tokens", k] if k else []), check=True, capture_output=True).stdout)
                    rates.setdefault(way, []).append(result["output_tokens"] / result["seconds"])
                    accepted[way] = result.get("accepted", 0) / max(1, result.get("drafted", 0))
                    digests.add(result["answers_sha256"])
            assert len(digests) == 1, "answers differ"
            base = statistics.median(rates["none"])
            print(f"\n{', '.join(options.tasks)}, {batch} at once ({len(lines)} conversations, prefill included)\n")
            print("| drafts | tokens/s | ratio | accepted of drafted |\n|---|---|---|---|")
            for way in options.ways:
                rate = statistics.median(rates[way])
                print(f"| {way} | {rate:.0f} | {rate / base:.2f} | {accepted[way]:.2f} |")


if __name__ == "__main__":
    main()

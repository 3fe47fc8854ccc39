#!/usr/bin/env python3
"""The embedded model answers its evaluation like the reference implementation, with adapters and without, however its requests are run.

usage: eval_test.py STRATA SOURCE [EACH]

EACH: only every so many-th conversation is asked, for a program slowed by a sanitizer; how many are right is checked only of all.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
MODEL = SOURCE / "models/tiny-hybrid"
EACH = int(sys.argv[3]) if len(sys.argv) > 3 else 1
FOLDER = tempfile.TemporaryDirectory()


def cases_of(path):
    """The file of cases, or one with those of it that are to be asked."""
    if EACH == 1:
        return path
    some = pathlib.Path(FOLDER.name) / "-".join(path.relative_to(MODEL).parts)
    some.write_text("".join(line + "\n" for line in path.read_text().splitlines()[::EACH]))
    return some


def evaluate(cases, *flags):
    run = subprocess.run([STRATA, "eval", "--cases", str(cases), "--json", *flags], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise AssertionError(f"{flags}: exit {run.returncode}: {run.stderr}")
    return json.loads(run.stdout)


class Eval(unittest.TestCase):
    def as_reference(self, result, share, cases):
        """Of `cases` at least the share; of a part of them one fewer."""
        self.assertEqual(result["cases"], -(-cases // EACH))
        self.assertGreaterEqual(result["same_as_reference"], share - (EACH > 1) / result["cases"])

    def test_accuracy_and_one_digest_for_every_way_of_running(self):
        want = json.loads((MODEL / "eval.json").read_text())
        digests = {}
        for flags in (["--batch", "16"], ["--batch", "16", "--chunk", "64", "--threads", "1", "--speculate", "mtp", "--draft-tokens", "3"],
                      ["--batch", "1", "--speculate", "ngram", "--no-prefix-cache"]):
            result = evaluate(cases_of(MODEL / "eval.jsonl"), *flags)
            digests[" ".join(flags)] = result["answers_sha256"]
            self.as_reference(result, 0.98, 576)
            if EACH > 1:
                continue
            for task, accuracy in result["accuracy"].items():
                self.assertLessEqual(abs(accuracy - want[task]), 0.021, task)
            if "mtp" in flags:
                for task in ("recall", "json", "tool", "count", "repeat"):
                    self.assertGreaterEqual(result["accepted_per_verify_step"][task], 2.0, task)
        self.assertEqual(len(set(digests.values())), 1, digests)

    def test_one_digest_for_every_way_of_drafting(self):
        """Two conversations of each task; the counts are there where something drafts."""
        by_task = {}
        for line in (MODEL / "eval.jsonl").read_text().splitlines():
            by_task.setdefault(json.loads(line)["task"], []).append(line)
        with tempfile.TemporaryDirectory() as folder:
            cases = pathlib.Path(folder) / "cases.jsonl"
            cases.write_text("".join(line + "\n" for lines in by_task.values() for line in lines[:2]))
            digest = evaluate(cases, "--batch", "16")["answers_sha256"]
            for batch in ("1", "16"):
                for drafter, drafts in [("mtp", k) for k in ("1", "2", "3", "auto")] + [("ngram", k) for k in ("3", "auto")]:
                    with self.subTest(batch=batch, drafter=drafter, drafts=drafts):
                        result = evaluate(cases, "--batch", batch, "--speculate", drafter, "--draft-tokens", drafts)
                        self.assertEqual(result["answers_sha256"], digest)
                        self.assertGreaterEqual(result["drafted"], result["accepted"])
                        if drafts != "auto":  # which may find that drafts do not pay here
                            self.assertGreater(result["verify_steps"], 0)
                            self.assertGreater(result["accepted"], 0)

    def test_a_quantised_head_for_drafts_costs_few_of_them(self):
        """And no answer."""
        flags = ["--limit", str(36 // EACH), "--batch", "16", "--speculate", "mtp", "--draft-tokens", "3", "--draft-head"]
        results = {head: evaluate(MODEL / "eval.jsonl", *flags, head) for head in ("same", "f8_e4m3", "q4_0")}
        rates = {head: r["accepted"] / r["drafted"] for head, r in results.items()}
        for head, result in results.items():
            self.assertEqual(result["answers_sha256"], results["same"]["answers_sha256"], head)
            self.assertGreater(rates[head], rates["same"] - 0.08, rates)

    def test_row_by_row_equals_whole(self):
        some = ["--limit", str(60 // EACH)]
        whole = evaluate(MODEL / "eval.jsonl", *some, "--chunk", "1000")
        rows = evaluate(MODEL / "eval.jsonl", *some, "--chunk", "1", "--batch", "1")
        self.assertEqual(whole["answers_sha256"], rows["answers_sha256"])
        # The digest can differ: another set of answers has another one.
        self.assertNotEqual(whole["answers_sha256"], evaluate(MODEL / "eval.jsonl", "--limit", str(60 // EACH - 1))["answers_sha256"])

    def test_adapters_answer_as_with_peft(self):
        base = evaluate(cases_of(MODEL / "lora/bracket/eval.jsonl"), "--batch", "16")
        self.assertLess(base["same_as_reference"], 0.1)  # the adapter shows in every answer
        for name in ("bracket", "polite"):
            folder = MODEL / "lora" / name
            want = json.loads((folder / "eval.json").read_text())
            digests = set()
            for flags in (["--batch", "16"], ["--batch", "3", "--chunk", "17", "--speculate", "mtp", "--draft-tokens", "3"]):
                result = evaluate(cases_of(folder / "eval.jsonl"), "--lora", str(folder), *flags)
                self.as_reference(result, 0.98, 144)
                if EACH == 1:
                    for task, accuracy in result["accuracy"].items():
                        self.assertLessEqual(abs(accuracy - want[task]), 0.1, f"{name} {task}")
                digests.add(result["answers_sha256"])
            self.assertEqual(len(digests), 1, name)

    def test_facts_hidden_in_long_texts(self):
        result = evaluate(cases_of(MODEL / "eval_long.jsonl"), "--batch", "4")
        self.as_reference(result, 0.97, 36)
        if EACH == 1:
            self.assertGreaterEqual(sum(round(share * 12) for share in result["accuracy"].values()), 34)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

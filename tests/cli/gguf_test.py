#!/usr/bin/env python3
"""Models as GGUF files: written by `strata quantize`, they answer as before; vocabularies and templates come along.

usage: gguf_test.py STRATA SOURCE
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
TINY = SOURCE / "models/tiny-hybrid"


def strata(*args, stdin=""):
    return subprocess.run([STRATA, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=300, check=False)


class Quantize(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = pathlib.Path(self.folder.name) / "m.gguf"

    def quantize(self, kind, source=TINY):
        run = strata("quantize", "--type", kind, source, self.file)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_answers_with_the_file_alone(self):
        self.assertIn("tensors", self.quantize("bf16"))
        for prompt in ("What is 12 + 30?", "Think step by step: 12 + 30 + 7 = ?", "Reverse the word: stone"):
            want = strata("run", "--temperature", "0", prompt)
            got = strata("run", "--temperature", "0", "--model", self.file, prompt)
            self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)

    def test_a_quantised_model_still_adds(self):
        self.quantize("q8_0")
        size = self.file.stat().st_size
        self.assertLess(size, 0.7 * sum(f.stat().st_size for f in TINY.glob("*-of-*.safetensors")))
        run = strata("run", "--model", self.file, "What is 12 + 30?")
        self.assertEqual((run.returncode, run.stdout), (0, "42\n"), run.stderr)

    def test_the_vocabulary_is_the_same(self):
        self.quantize("q8_0")
        text = "Hello, wörld! \n\n  12345 <think>it's</think> 日本語 <|im_start|>user\n"
        for flags in ([], ["--special"]):
            want = strata("tokenize", *flags, stdin=text)
            got = strata("tokenize", *flags, "--model", self.file, stdin=text)
            self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)
            self.assertGreater(len(want.stdout.split()), 15)

    def test_load_time_quantisation(self):
        run = strata("run", "--weights", "q8_0", "What is 12 + 30?")
        self.assertEqual((run.returncode, run.stdout), (0, "42\n"), run.stderr)

    def test_errors_name_the_cause(self):
        run = strata("quantize", "--type", "q9", TINY, self.file)
        self.assertEqual(run.returncode, 1)
        self.assertIn("unknown type 'q9'", run.stderr)
        self.file.write_bytes(b"GGUF" + bytes(20))
        run = strata("run", "--model", self.file, "hello")
        self.assertEqual(run.returncode, 1)
        self.assertIn("m.gguf: GGUF version 0 is not supported", run.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])

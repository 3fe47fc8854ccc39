#!/usr/bin/env python3
"""Models as GGUF files: written by `strata quantize`, they answer as before; vocabularies and templates come along.

usage: gguf_test.py STRATA SOURCE
"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
TINY = SOURCE / "models/tiny-hybrid"


def strata(*args, stdin=""):
    return subprocess.run([STRATA, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=300, check=False)


def unigram_file(charsmap):
    """A GGUF file of nothing but a Unigram vocabulary."""

    def text(t):
        return struct.pack("<Q", len(t.encode())) + t.encode()

    def array(kind, items):
        return struct.pack("<IIQ", 9, kind, len(items)) + b"".join(items)

    tokens, scores, types = ["<unk>", "</s>", "\u2581", "\u2581ab", "a", "b"], [0, 0, -3, -1, -4, -4], [2, 3, 1, 1, 1, 1]
    pairs = [
        text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("t5"),
        text("tokenizer.ggml.tokens") + array(8, [text(t) for t in tokens]),
        text("tokenizer.ggml.scores") + array(6, [struct.pack("<f", s) for s in scores]),
        text("tokenizer.ggml.token_type") + array(5, [struct.pack("<i", t) for t in types]),
        text("tokenizer.ggml.eos_token_id") + struct.pack("<II", 4, 1),
        text("tokenizer.ggml.precompiled_charsmap") + array(0, [bytes([b]) for b in charsmap]),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


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

    def test_texts_are_normalised_as_the_published_tokenizer_does(self):
        # Qwen's tokenizer.json says NFC; GGUF has no key for it. A letter and its mark, a Hangul syllable in parts, an Angstrom sign.
        self.quantize("q8_0")
        for apart, together in (("cafe\u0301", "caf\u00e9"), ("\u1112\u1161\u11ab", "\ud55c"), ("\u212b", "\u00c5")):
            want = strata("tokenize", stdin=together)
            for flags in ([], ["--model", self.file]):
                got = strata("tokenize", *flags, stdin=apart)
                self.assertEqual((got.returncode, got.stdout), (0, want.stdout), got.stderr)

    def test_a_vocabulary_with_a_character_map_is_refused(self):
        for charsmap, status in ((b"", 0), (bytes(8), 1)):
            self.file.write_bytes(unigram_file(charsmap))
            run = strata("tokenize", "--special", "--model", self.file, stdin="ab")
            self.assertEqual(run.returncode, status, run.stderr)
            if status:
                self.assertIn("m.gguf: tokenizer.ggml.precompiled_charsmap is not supported", run.stderr)
            else:
                self.assertEqual(run.stdout.split(), ["3", "1"])

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

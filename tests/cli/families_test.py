#!/usr/bin/env python3
"""Every family's golden model through the program: `strata inspect` shows it, `strata serve` answers."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
GOLDEN = sorted(p.parent for p in (SOURCE / "tests/golden").glob("*/config.json"))


def byte_tokens():
    """The characters that byte-level BPE writes bytes as (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def model_folder(golden, to):
    """The golden model with a tokenizer of one token a byte, as golden models have none."""
    for name in ("config.json", "model.safetensors"):
        os.symlink(golden / name, to / name)
    tokenizer = {
        "added_tokens": [],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {c: b for b, c in byte_tokens().items()}, "merges": []},
    }
    (to / "tokenizer.json").write_text(json.dumps(tokenizer))
    return to


class Families(unittest.TestCase):
    def test_inspect_shows_every_family(self):
        self.assertGreater(len(GOLDEN), 20)
        for golden in GOLDEN:
            with self.subTest(golden.name):
                config = json.loads((golden / "config.json").read_text())
                run = subprocess.run([STRATA, "inspect", str(golden)], capture_output=True, text=True)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn(config["architectures"][0], run.stdout)
                for block in range(config.get("num_hidden_layers", len(config.get("layers_block_type", [])))):
                    self.assertIn(f"layers.{block}.", run.stdout)

    def test_serve_answers_with_every_family(self):
        for golden in GOLDEN:
            with self.subTest(golden.name), tempfile.TemporaryDirectory() as folder:
                model = model_folder(golden, pathlib.Path(folder))
                server = subprocess.Popen([STRATA, "serve", "--model", str(model), "--port", "0", "--memory", "64MiB"],
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                try:
                    found = re.search(r"http://\S+", server.stdout.readline())
                    self.assertIsNotNone(found, "the server did not start")
                    texts = [self.complete(found[0]) for _ in range(2)]
                    self.assertEqual(texts[0], texts[1])
                finally:
                    server.send_signal(signal.SIGTERM)
                    errors = server.communicate(timeout=60)[1]
                self.assertEqual(server.returncode, 0, errors)

    def complete(self, address):
        body = {"prompt": "one two three " * 8, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
        request = urllib.request.Request(address + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        answer = json.loads(urllib.request.urlopen(request, timeout=60).read())
        self.assertEqual(answer["usage"]["completion_tokens"], 12)
        return answer["choices"][0]["text"]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

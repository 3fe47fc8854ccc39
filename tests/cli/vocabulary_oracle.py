#!/usr/bin/env python3
"""Tokenizers of GGUF vocabularies against ids recorded with llama.cpp, out of the source package llama-cpp-python.

usage: vocabulary_oracle.py STRATA [--fetch]

The package is looked for in the cache folder; --fetch fetches it. Without it the test is skipped (exit status 77).
"""
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unicodedata

CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "strata"
PACKAGE = "llama-cpp-python==0.3.36"
SEPARATOR = "\n__ggml_vocab_test__\n"
# Kinds this engine reads; the others are of WordPiece and RWKV models, or of splits it has no name for.
KNOWN = ["llama-bpe", "qwen2", "qwen35", "llama-spm", "phi-3", "starcoder", "refact", "gpt-2", "command-r", "mpt", "deepseek-coder"]


def source(fetch):
    name = PACKAGE.replace("-", "_").replace("==", "-") + ".tar.gz"
    if not (CACHE / name).exists() and fetch:
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(CACHE), PACKAGE],
                       check=True)
    return CACHE / name


def main():
    strata, archive = sys.argv[1], source("--fetch" in sys.argv)
    if not archive.exists():
        print(f"SKIPPED: the vocabularies of {PACKAGE} are not in the cache (vocabulary_oracle.py --fetch)")
        return 77
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = pathlib.PurePath(member.name)
                if path.parent.name == "models" and path.name.startswith("ggml-vocab-") and member.isfile():
                    (pathlib.Path(folder) / path.name).write_bytes(tar.extractfile(member).read())
        for name in KNOWN:
            file = pathlib.Path(folder) / f"ggml-vocab-{name}.gguf"
            recorded = pathlib.Path(f"{file}.out")
            if not recorded.exists():
                print(f"{name}: not in the package")
                continue
            texts = pathlib.Path(f"{file}.inp").read_bytes().decode("utf-8")
            want = [line.split() for line in recorded.read_text().splitlines()]
            run = subprocess.run([strata, "tokenize", "--model", file, "--separator", SEPARATOR], input=texts.encode(), capture_output=True,
                                 timeout=300, check=False)
            got = [line.split() for line in run.stdout.decode().splitlines()]
            # The last text has no recorded ids. Qwen's published tokenizers normalise to NFC first, llama.cpp does not.
            known = texts.split(SEPARATOR)[:len(want)]
            plain = [i for i, t in enumerate(known) if not name.startswith("qwen") or unicodedata.normalize("NFC", t) == t]
            bad = [i for i in plain if i >= len(got) or want[i] != got[i]]
            print(f"{name}: {len(plain) - len(bad)} of {len(plain)} texts alike {run.stderr.decode().strip()}")
            for i in bad[:3]:
                print(f"  {known[i]!r}: {want[i]}, ours {dict(enumerate(got)).get(i)}")
            wrong += len(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

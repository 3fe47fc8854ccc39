#!/usr/bin/env python3
"""Every golden model that has a form in GGUF, written by Strata and run by llama.cpp, beside its reference logits.

    bench/peers/llama_cpp_families.py [--strata build/cpu/src/cli/strata] [NAME ...]

This is the proof that names, layouts and keys are llama.cpp's: a file that it does not understand fails to load, one that is
misunderstood gives other logits. Exit status 0 when all that load agree; what this llama.cpp does not know is listed.
llama.cpp comes as for llama_cpp.py, in the same private environment.
"""
import argparse
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOLERANCE = 0.03  # relative: the references' rotary tables are rounded to bf16, and llama.cpp keeps keys and values in f16


def reference(golden):
    """ids [65] and logits [65][vocabulary] of the golden model."""
    data = (golden / "reference.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])

    def values(name, kind):
        begin, end = (8 + length + n for n in header[name]["data_offsets"])
        return struct.unpack(f"<{(end - begin) // 4}{kind}", data[begin:end])

    ids, logits = values("ids.t65", "i"), values("logits.t65", "f")
    width = len(logits) // len(ids)
    return list(ids), [logits[i * width:(i + 1) * width] for i in range(len(ids))]


def evaluate(path, ids):
    """llama.cpp's logits of every row; run in a process of its own, since a file it dislikes may end it."""
    import ctypes

    sys.path.pop(0)  # llama_cpp.py lies beside this file
    import llama_cpp

    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    if hasattr(params, "use_extra_bufts"):
        params.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise SystemExit("does not load")
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_threads, settings.n_threads_batch = 256, 128, 128, 2, 2
    context = llama_cpp.llama_init_from_model(model, settings)
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, True
        batch.seq_id[i][0] = 0
    if llama_cpp.llama_decode(context, batch) != 0:
        raise SystemExit("llama_decode failed")
    vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [ctypes.cast(llama_cpp.llama_get_logits_ith(context, i), ctypes.POINTER(ctypes.c_float * vocabulary)).contents[:]
            for i in range(len(ids))]
    print(json.dumps(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--strata", default=ROOT / "build/cpu/src/cli/strata", type=pathlib.Path)
    parser.add_argument("--evaluate", type=pathlib.Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.evaluate:
        return evaluate(arguments.evaluate, json.loads(sys.stdin.read()))
    from llama_cpp import private_python  # the script beside this one

    python, failed = private_python(), False
    for golden in sorted(p.parent for p in (ROOT / "tests/golden").glob("*/config.json")):
        if arguments.names and golden.name not in arguments.names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "m.gguf"
            made = subprocess.run([arguments.strata, "quantize", "--type", "f32", golden, file], capture_output=True, text=True)
            if made.returncode != 0:
                print(f"{golden.name:20} no GGUF: {made.stderr.strip().splitlines()[-1]}")
                continue
            ids, want = reference(golden)
            run = subprocess.run([python, __file__, "--evaluate", file], input=json.dumps(ids), capture_output=True, text=True)
            if run.returncode != 0:
                said = [line for line in run.stderr.splitlines() if "error" in line or "unknown" in line or "does not" in line]
                print(f"{golden.name:20} llama.cpp: {said[0].strip() if said else run.stderr[-200:]}")
                continue
            got = json.loads(run.stdout)
            miss = sum((a - b) ** 2 for x, y in zip(got, want) for a, b in zip(x, y))
            error = math.sqrt(miss / sum(b * b for y in want for b in y))
            agree = error < TOLERANCE
            failed = failed or not agree
            print(f"{golden.name:20} relative error of the logits {error:.5f}{'' if agree else '  DIFFERS'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

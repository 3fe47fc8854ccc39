#!/usr/bin/env python3
"""Strata beside llama.cpp on one GGUF file: what they answer, and how fast.

    bench/peers/llama_cpp.py --model FILE.gguf [--strata build/cpu/src/cli/strata] [--threads 2] [--repeats 7]

llama-cpp-python (which builds llama.cpp for this machine; minutes, once) goes into a private environment under the cache
folder. Compared on the same ids: greedy continuations, the log-likelihood of a fixed text, and prefill and decode rates,
measured in turns (one, the other, one, ...) with medians and ratios at the end. Exit status 0 when the answers agree.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

PACKAGE = "llama-cpp-python==0.3.36"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "strata"

NEAR_TIE = 0.1  # of two logits in f32: closer ones the rounding of rows to 8 bits, which both engines do, may swap

# About 1,000 tokens of plain prose, made for this test.
SENTENCES = """The river runs past the old mill before it turns south. In spring the water is high, and boats come up from the sea.
A carpenter named Anna keeps a shop near the bridge. She makes chairs, tables and small boxes out of ash and oak.
Her brother sails twice a year to the islands, where he trades tools for wool and salted fish.
When the first snow falls, the children skate on the pond behind the school until it is too dark to see.
The teacher says that ice forms from the top because cold water is heavier than ice, and so the fish live through the winter.
In the market a loaf of bread costs two coins, a basket of apples three, and a good knife costs as much as a week of work.
On the hill stands a tower with a clock that has been wrong for a hundred years; nobody minds, since the bell is right.""".split("\n")
PROMPTS = [
    "The capital of France is",
    "Question: What is the colour of the sky on a clear day? Answer:",
    "Once upon a time, there was a little girl who",
    "def add(a, b):\n    return",
]


def fixed_text():
    paragraphs = []
    for i in range(6):
        paragraphs.append(" ".join(SENTENCES[(i * 3 + j) % len(SENTENCES)] for j in range(len(SENTENCES))))
    return "\n\n".join(paragraphs)


def private_python():
    """The interpreter of the private environment, with the package in it."""
    environment = CACHE / "llama_cpp_venv"
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    if subprocess.run([str(python), "-c", "import llama_cpp"], capture_output=True).returncode != 0:
        print(f"installing {PACKAGE}: this builds llama.cpp", flush=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python", PACKAGE], check=True)
    return python


class Peer:
    """A process that answers one JSON line for each JSON line."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.process.args[0]} ended")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def serve_llama(arguments):
    """The llama.cpp side, run by the private interpreter: answers requests on stdin."""
    import ctypes

    sys.path.pop(0)  # this file has the package's name
    import llama_cpp

    # Its AMX buffers end in a segmentation fault on files like SmolLM2's where that was tried: without them there are no repacked
    # weights either, so machines that lack AMX keep both.
    if "amx_int8" in pathlib.Path("/proc/cpuinfo").read_text():
        defaults = llama_cpp.llama_model_default_params

        def plain_buffers():
            params = defaults()
            params.use_extra_bufts = False
            return params

        sys.modules["llama_cpp.llama_cpp"].llama_model_default_params = plain_buffers
    kv = {"f32": 0, "f16": 1}[arguments.kv_dtype]
    model = llama_cpp.Llama(str(arguments.model), n_ctx=4096, n_batch=2048, n_ubatch=512, n_threads=arguments.threads,
                            n_threads_batch=arguments.threads, type_k=kv, type_v=kv, logits_all=True, verbose=False)
    vocabulary = model.n_vocab()

    def evaluate(ids):
        """Puts ids behind what the context holds; only the last row's logits are computed."""
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = model.n_tokens + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = i == len(ids) - 1
        if llama_cpp.llama_decode(model.ctx, batch) != 0:
            raise RuntimeError("llama_decode failed")
        llama_cpp.llama_batch_free(batch)
        model.n_tokens += len(ids)
        row = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        return ctypes.cast(row, ctypes.POINTER(ctypes.c_float * vocabulary)).contents

    def clear():
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(model.ctx), True)
        model.n_tokens = 0

    for line in sys.stdin:
        request = json.loads(line)
        clear()
        if request["do"] == "tokenize":
            answer = model.tokenize(request["text"].encode(), add_bos=True, special=True)
        elif request["do"] == "greedy":
            answer, gaps = [], []
            ids = request["ids"]
            for _ in range(request["count"]):
                logits = list(evaluate(ids))
                best = max(range(vocabulary), key=logits.__getitem__)
                gaps.append(logits[best] - max(v for i, v in enumerate(logits) if i != best))
                answer.append(best)
                ids = [best]
            answer = {"ids": answer, "gaps": gaps}
        elif request["do"] == "likelihood":
            total = 0.0
            ids = request["ids"]
            for i in range(len(ids) - 1):
                logits = list(evaluate([ids[i]]))
                top = max(logits)
                total += logits[ids[i + 1]] - top - math.log(sum(math.exp(v - top) for v in logits))
            answer = total
        else:
            start = time.perf_counter()
            evaluate(request["ids"])
            middle = time.perf_counter()
            token = request["ids"][-1]
            for _ in range(request["count"]):
                evaluate([token])
            answer = {"prefill": len(request["ids"]) / (middle - start), "decode": request["count"] / (time.perf_counter() - middle)}
        print(json.dumps(answer), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--strata", default="build/cpu/src/cli/strata")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--kv-dtype", choices=("f16", "f32"), default="f16", help="of keys and values, on both sides")
    parser.add_argument("--python", type=pathlib.Path, help="an interpreter that has llama_cpp (default: the private one)")
    parser.add_argument("--speed-only", action="store_true")
    parser.add_argument("--serve-llama", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_llama:
        return serve_llama(arguments)

    common = ["--model", str(arguments.model), "--threads", str(arguments.threads), "--kv-dtype", arguments.kv_dtype]
    llama = Peer([str(arguments.python or private_python()), __file__, "--serve-llama", *common])
    own = [arguments.strata, "peer", "--max-sequences", "1", "--memory", "1GiB"]
    strata = Peer([*own, *common])
    failures = 0
    ids = llama.ask(do="tokenize", text=fixed_text())
    ours = strata.ask(do="tokenize", text=fixed_text())
    print(f"tokens of the fixed text: {len(ids)} and {len(ours)}, {'the same' if ids == ours else 'DIFFERENT'}")
    failures += ids != ours

    if not arguments.speed_only:
        # The judge: the same weights in f32, with rows and keys and values that nobody rounds.
        judge = Peer([*own, "--model", str(arguments.model), "--threads", str(arguments.threads), "--weights", "f32", "--kv-dtype", "f32"])
        for prompt in PROMPTS:
            prompt_ids = llama.ask(do="tokenize", text=prompt)
            theirs = llama.ask(do="greedy", ids=prompt_ids, count=24)
            mine = strata.ask(do="greedy", ids=prompt_ids, count=24)["ids"]
            same = next((i for i, (a, b) in enumerate(zip(theirs["ids"], mine)) if a != b), len(mine))
            print(f"greedy {prompt!r}: {same} of {len(mine)} tokens alike")
            if same == len(mine):
                continue
            # Where they part: how far each holds its own token and the other's apart (logits differ as log-likelihoods do).
            before = prompt_ids + mine[:same]
            gaps = [p.ask(do="likelihood", ids=before + [theirs["ids"][same]]) - p.ask(do="likelihood", ids=before + [mine[same]])
                    for p in (judge, llama, strata)]
            print(f"  then theirs leads by {gaps[0]:.3f} in f32, by {gaps[1]:.3f} in llama.cpp, by {gaps[2]:.3f} in strata")
            failures += gaps[0] > NEAR_TIE  # where f32 holds ours, theirs strayed
        text = ids[:1001]
        theirs, mine, exact = (p.ask(do="likelihood", ids=text) for p in (llama, strata, judge))
        judge.close()
        off = abs(mine - theirs) / abs(theirs)
        print(f"log-likelihood of {len(text) - 1} tokens: llama.cpp {theirs:.3f}, strata {mine:.3f}, {100 * off:.3f} % apart; in f32 {exact:.3f}")
        failures += off > 0.005

    rates = {"llama.cpp": [], "strata": []}
    for repeat in range(arguments.repeats + 1):
        for name, peer in (("llama.cpp", llama), ("strata", strata)):
            rate = peer.ask(do="speed", ids=(ids * 4)[:arguments.prefill], count=arguments.decode)
            if repeat > 0:  # the first warms up
                rates[name].append(rate)
    for what in ("prefill", "decode"):
        theirs, mine = (statistics.median(r[what] for r in rates[name]) for name in ("llama.cpp", "strata"))
        print(f"{what}: llama.cpp {theirs:.1f} tok/s, strata {mine:.1f} tok/s, ratio {mine / theirs:.2f}")
    for peer in (llama, strata):
        peer.close()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

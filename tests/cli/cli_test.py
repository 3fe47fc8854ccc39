#!/usr/bin/env python3
"""The command line: answers, exit codes, and errors that name their cause.

usage: cli_test.py STRATA SOURCE
"""
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

STRATA, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()


def strata(*args, stdin=""):
    return subprocess.run([STRATA, *args], capture_output=True, text=True, input=stdin, timeout=120, check=False)


class Run(unittest.TestCase):
    def test_answers_once_and_exits(self):
        run = strata("run", "What is 12 + 30?")
        self.assertEqual((run.returncode, run.stdout), (0, "42\n"))
        run = strata("run", "--stats", "Think step by step: 12 + 30 + 7 = ?")
        self.assertIn("49", run.stdout)
        self.assertIn("tokens/s", run.stderr)

    def test_a_conversation_from_a_pipe_remembers(self):
        run = strata("run", stdin="Remember these facts. The room of Ada is 2956. The room of Vito is 9309.\nTell me the room of Ada.\n/clear\nWhat is 2 + 2?\n")
        self.assertEqual(run.returncode, 0)
        self.assertIn("2956", run.stdout.splitlines()[1])
        self.assertEqual(run.stdout.splitlines()[-1], "4")

    def test_a_seed_repeats_a_story(self):
        tell = lambda seed: strata("run", "--temperature", "1", "--seed", str(seed), "Tell me a story about a fox.").stdout
        self.assertEqual(tell(5), tell(5))
        self.assertGreater(len({tell(s) for s in range(4)}), 1)

    def test_the_chat_greets_edits_and_leaves(self):
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(STRATA, [STRATA, "run"])
        text = ""

        def wait_for(what):
            nonlocal text
            end = time.time() + 60
            while what not in text:
                self.assertLess(time.time(), end, text)
                text += os.read(fd, 4096).decode(errors="replace")
            text = text[text.index(what) + len(what):]

        wait_for("What is 12 + 30?")
        wait_for("> ")
        os.write(fd, b"What is 20 + 3?\n")
        wait_for("23")
        wait_for("> ")
        os.write(fd, b"/quit\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)

    def test_interrupt_stops_the_answer(self):
        run = subprocess.Popen([STRATA, "run", "--temperature", "1", "--raw", "--max-tokens", "30000", "the"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        run.stdout.read(1)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
        self.assertIn(run.returncode, (0, 130))


class Usage(unittest.TestCase):
    def test_bad_usage_is_2_and_bad_models_are_1(self):
        self.assertEqual(strata("run", "--no-such-flag").returncode, 2)
        self.assertEqual(strata().returncode, 2)
        self.assertEqual(strata("--help").returncode, 0)
        run = strata("run", "--model", "/no/such/model", "hello")
        self.assertEqual(run.returncode, 1)
        self.assertIn("/no/such/model", run.stderr)
        run = strata("run", "--speculate", "magic", "hello")
        self.assertEqual(run.returncode, 1)
        self.assertIn("magic", run.stderr)
        self.assertIn("--draft-tokens", strata("run", "--draft-tokens", "99", "x").stderr)
        self.assertIn("memory", strata("run", "--memory", "lots", "x").stderr)

    def test_a_backend_that_is_not_there_says_so(self):
        run = strata("run", "--backend", "cuda", "What is 12 + 30?")
        if run.returncode == 0:
            self.assertEqual(run.stdout, "42\n")  # there is one
        else:
            self.assertEqual(run.returncode, 1)
            self.assertRegex(run.stderr, "this build is for the CPU only|no CUDA device: .")
        self.assertEqual(strata("run", "--backend", "tpu", "hi").returncode, 2)
        self.assertIn("--activations fp8 needs --backend cuda", strata("run", "--activations", "fp8", "hi").stderr)

    def test_heads_of_a_type_of_their_own(self):
        run = strata("run", "--head", "q8_0", "--speculate", "mtp", "--draft-tokens", "2", "--draft-head", "same", "What is 12 + 30?")
        self.assertEqual(run.stdout, "42\n", run.stderr)
        mtp = ["--speculate", "mtp", "--draft-tokens", "3", "--draft-head"]
        self.assertEqual(strata("run", *mtp, "fp8", "What is 12 + 30?").stdout, "42\n")
        for flags, said in ((["--head", "q9_9"], "unknown type 'q9_9'"), ([*mtp, "q9_9"], "unknown type 'q9_9'"),
                            (["--draft-head", "q4_0"], "--draft-head q4_0 needs a drafter that has a head"),
                            (["--draft-head", "q4_0", "--speculate", "ngram"], "--draft-head q4_0 needs a drafter that has a head"),
                            (["--weights", "q8_0", *mtp, "q4_0"], "the head is q8_0 already")):
            run = strata("run", *flags, "hi")
            self.assertEqual(run.returncode, 1, flags)
            self.assertIn(said, run.stderr)
        draft = "draft=" + str(SOURCE / "models/tiny-hybrid")
        run = strata("run", "--speculate", draft, "--draft-tokens", "2", "--draft-head", "q4_0", "What is 12 + 30?")
        self.assertEqual(run.stdout, "42\n", run.stderr)

    def test_an_unknown_architecture_names_the_known_ones(self):
        with tempfile.TemporaryDirectory() as folder:
            golden = SOURCE / "tests/golden/qwen3"
            config = json.loads((golden / "config.json").read_text())
            config["architectures"], config["model_type"] = ["NoSuchForCausalLM"], "no_such"
            (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
            os.symlink(golden / "model.safetensors", pathlib.Path(folder) / "model.safetensors")
            run = strata("inspect", folder)
        self.assertEqual(run.returncode, 1)
        self.assertIn("NoSuchForCausalLM", run.stderr)
        self.assertIn("Qwen3ForCausalLM", run.stderr)

    def test_flags_from_a_file_and_the_command_line_wins(self):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as f:
            f.write('[run]\nmax-tokens = 1\n')
            f.flush()
            self.assertIn("cut", strata("--config", f.name, "run", "What is 12 + 30?").stderr)
            self.assertEqual(strata("--config", f.name, "run", "--max-tokens", "9", "What is 12 + 30?").stdout, "42\n")


class Inspect(unittest.TestCase):
    def test_shows_layers_and_memory(self):
        out = strata("inspect").stdout
        for what in ("Qwen3_5MoeForCausalLM", "recurrent state", "keys and values", "a context of 4096 tokens", "multi-token-prediction"):
            self.assertIn(what, out)

    def test_the_readme_lists_the_families_this_build_knows(self):
        table = strata("inspect", "--families").stdout
        self.assertIn(table, (SOURCE / "README.md").read_text())


class Serve(unittest.TestCase):
    def test_an_idle_server_ends_at_once_when_told_to(self):
        for requests in (0, 1):
            server = subprocess.Popen([STRATA, "serve", "--port", "0"], stdout=subprocess.PIPE, text=True)
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            for _ in range(requests):
                body = json.dumps({"prompt": "What", "max_tokens": 1}).encode()
                urllib.request.urlopen(urllib.request.Request(address + "/v1/completions", body, {"Content-Type": "application/json"})).read()
            server.send_signal(signal.SIGTERM)
            self.assertEqual(server.wait(10), 0)
            server.stdout.close()


class Bench(unittest.TestCase):
    def test_prints_json(self):
        run = strata("bench", "--json", "--batches", "1,2", "--contexts", "64", "--repeat", "1", "--prefill", "64")
        result = json.loads(run.stdout)
        self.assertEqual([d["batch"] for d in result["decode"]], [1, 2])
        self.assertGreater(result["memory_bytes_per_second"], 1e8)
        self.assertGreater(result["decode"][0]["bytes"], 1e6)

    def test_says_what_each_op_takes(self):
        run = strata("bench", "--json", "--ops", "--batches", "1", "--contexts", "64", "--repeat", "1", "--prefill", "64")
        result = json.loads(run.stdout)
        for step in (result["prefill"], result["decode"][0]):
            ops = {op["name"]: op for op in step["ops"]}
            self.assertLessEqual({"linear", "attention", "gated_delta", "add_rms_norm"}, set(ops))
            self.assertGreater(ops["linear"]["operations_per_second"], 0)
            self.assertGreater(ops["linear"]["share_of_bandwidth"], 0)

    def test_decodes_for_as_long_as_asked(self):
        run = strata("bench", "--batches", "1", "--contexts", "64", "--repeat", "110", "--prefill", "1")  # 550 steps
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_dummy_weights_need_a_configuration_only(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(SOURCE / "tests/golden/qwen3_5_moe/config.json", folder)
            flags = ["--model", folder, "--json", "--batches", "2", "--contexts", "64", "--repeat", "1", "--prefill", "64"]
            run = strata("bench", *flags, "--weights", "dummy", "--dtype", "fp8")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertEqual([d["batch"] for d in json.loads(run.stdout)["decode"]], [2])
            self.assertIn("model.safetensors", strata("bench", *flags).stderr)
        self.assertIn("qwen3.5-35b-a3b", strata("bench", "--shape", "qwen9").stderr)


class DummyServer(unittest.TestCase):
    """Dummy weights with a fixed acceptance of drafts, and the benchmark of a whole server."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        config = json.loads((SOURCE / "tests/golden/qwen3_5_moe/config.json").read_text())
        config.get("text_config", config)["max_position_embeddings"] = 2048
        (pathlib.Path(cls.folder.name) / "config.json").write_text(json.dumps(config))
        cls.flags = ["--model", cls.folder.name, "--weights", "dummy", "--memory", "64MiB"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_acceptance_is_simulated_with_dummy_weights_only(self):
        drafts = ["--speculate", "mtp", "--draft-tokens", "3", "--simulate-acceptance"]
        self.assertIn("dummy weights", strata("run", *drafts, "0.8", "hi").stderr)
        self.assertIn("--speculate", strata("run", *self.flags, "--simulate-acceptance", "0.8", "hi").stderr)
        self.assertEqual(strata("run", *self.flags, *drafts, "1.5", "hi").returncode, 2)
        run = strata("run", *self.flags, *drafts, "1", "--raw", "--stats", "--max-tokens", "17", "hi")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, "12 of 12")  # 1 token of the prompt's step, 4 blocks of 3 drafts and one more token
        self.assertIn("benchmarks", strata("serve", "--help").stdout)

    def test_a_server_is_loaded_with_token_ids_for_a_limited_time(self):
        server = subprocess.Popen([STRATA, "serve", "--port", "0", *self.flags], stdout=subprocess.PIPE, text=True)
        try:
            url = re.search(r"http://\S+", server.stdout.readline())[0]
            report = pathlib.Path(self.folder.name) / "load.json"
            bench = ["bench", "--url", url, "--prompt-tokens", "100", "--vocabulary", "300", "--concurrency", "3", "--json-file", str(report)]
            run = strata(*bench, "--requests", "6", "--output-tokens", "8")
            self.assertEqual(run.returncode, 0, run.stderr + run.stdout)
            load = json.loads(report.read_text())
            self.assertEqual((load["ok"], load["given_up"], load["prompt_tokens"], load["output_tokens"], load["cached_tokens"]), (6, 0, 600, 48, 0))
            self.assertGreater(load["ttft_ms"]["p50"], 0)
            self.assertGreater(load["per_output_token_ms"]["p50"], 0)
            run = strata(*bench, "--requests", "1000000", "--output-tokens", "1800", "--seconds", "1")
            self.assertEqual(run.returncode, 0, run.stderr + run.stdout)
            load = json.loads(report.read_text())
            self.assertIn(load["given_up"], (1, 2, 3))
            self.assertEqual(load["requests"], load["ok"] + load["given_up"])
            self.assertLess(load["seconds"], 20)
        finally:
            server.terminate()
            server.wait(60)
            server.stdout.close()

    def test_the_whole_benchmark_runs(self):
        report = pathlib.Path(self.folder.name) / "serve.json"
        run = subprocess.run([sys.executable, SOURCE / "bench/serve_gpu.py", "--strata", STRATA, "--model", self.folder.name, "--backend", "cpu", "--dtype", "bf16",
                              "--loads", "100/16@1,3", "--ways", "none", "mtp:3", "--vocabulary", "300", "--json", report, "--flags", "--memory", "64MiB"],
                             capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        loads = json.loads(report.read_text())
        self.assertEqual([(r["way"], r["concurrency"], r["ok"]) for r in loads], [("none", 1, 3), ("none", 3, 9), ("mtp:3", 1, 3), ("mtp:3", 3, 9)])
        for r in loads:
            self.assertAlmostEqual(sum(r["share_of_time"].values()), 1, delta=0.05)
            self.assertGreater(r["output_tokens_per_second"], 0)
        self.assertGreater(loads[3]["accepted_share"], 0.4)
        self.assertEqual(run.stdout.count("| 100/16 at "), 4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)

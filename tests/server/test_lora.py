"""LoRA adapters through the server: chosen per request, mixed in one batch, loaded and unloaded while others run."""
import concurrent.futures
import pathlib

import pytest

from conftest import ROOT, conversations

ADAPTERS = ROOT / "models/tiny-hybrid/lora"


@pytest.fixture(scope="module")
def adapted(start):
    # One slot, so that the two adapters take turns in it; drafts (a fixed number: how many pay is a matter of
    # the machine) and prefix cache on.
    return start("--lora", f"bracket={ADAPTERS / 'bracket'}", "--lora", f"polite={ADAPTERS / 'polite'}", "--max-loras", 1,
                 "--speculate", "mtp", "--draft-tokens", 2, "--max-sequences", 16)


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def asked(name, count):
    """Conversations of an adapter's evaluation (or the base's) with the recorded answers."""
    path = f"lora/{name}/eval.jsonl" if name else "eval.jsonl"
    picked = [c for c in conversations(name=path) if c["task"] in ("recall", "count", "reverse", "sort", "hello")]
    return [(name, c) for c in picked[:: max(1, len(picked) // count)][:count]]


def ask(server, name, conversation):
    return text_of(server.chat(conversation["messages"], **({"model": name} if name else {})))


@pytest.mark.parametrize("concurrency", [3, 16])
def test_mixed_batches_answer_as_solo(adapted, start, concurrency):
    cases = [case for triple in zip(asked("", 12), asked("bracket", 12), asked("polite", 12)) for case in triple]
    base = start("--max-loras", 0)
    solo = [ask(base if not name else adapted, name, c) for name, c in cases]
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        mixed = list(pool.map(lambda case: ask(adapted, *case), cases))
    assert mixed == solo
    same = sum(answer.strip() == c["got"].strip() for answer, (_, c) in zip(solo, cases))
    assert same >= len(cases) - 1, "answers of the reference"
    metrics = adapted.idle()
    assert metrics["strata_adapters_in_use"] == 0
    assert metrics['strata_adapter_accepted_tokens_total{adapter="bracket"}'] > 0


def test_models_name_base_and_adapters(adapted):
    models = {m["id"]: m for m in adapted.http.get("/v1/models").json()["data"]}
    assert set(models) == {"tiny-hybrid", "bracket", "polite"}
    assert models["bracket"]["parent"] == "tiny-hybrid" and models["tiny-hybrid"]["parent"] is None


def test_load_and_unload_while_others_run(adapted):
    post = adapted.http.post
    name, conversation = asked("polite", 1)[0]
    want = ask(adapted, name, conversation)
    base_want = ask(adapted, "", conversation)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        others = [pool.submit(ask, adapted, "", conversation) for _ in range(20)]
        for _ in range(5):
            body = {"lora_name": "fresh", "lora_path": str(ADAPTERS / "polite")}
            assert post("/v1/load_lora_adapter", json=body).status_code == 200
            again = post("/v1/load_lora_adapter", json=body)
            assert again.status_code == 400 and "already" in again.json()["error"]["message"]
            assert post("/v1/load_lora_adapter", json={**body, "load_inplace": True}).status_code == 200
            assert ask(adapted, "fresh", conversation) == want
            assert post("/v1/unload_lora_adapter", json={"lora_name": "fresh"}).status_code == 200
            gone = post("/v1/chat/completions", json={"model": "fresh", "messages": conversation["messages"]})
            assert gone.status_code == 404
        assert {f.result() for f in others} == {base_want}


@pytest.mark.parametrize("body, param", [
    ({"lora_path": str(ADAPTERS / "polite")}, "lora_name"),
    ({"lora_name": "x"}, "lora_path"),
    ({"lora_name": "x", "lora_path": "/nowhere"}, "lora_path"),
    ({"lora_name": "x", "lora_path": str(pathlib.Path(__file__).parent)}, "lora_path"),
    ({"lora_name": "tiny-hybrid", "lora_path": str(ADAPTERS / "polite")}, "lora_name"),
])
def test_refusals_name_the_field(adapted, body, param):
    reply = adapted.http.post("/v1/load_lora_adapter", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_unloading_what_is_not_there(adapted):
    assert adapted.http.post("/v1/unload_lora_adapter", json={"lora_name": "x"}).status_code == 404

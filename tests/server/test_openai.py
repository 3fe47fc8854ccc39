"""The official OpenAI client against a real server."""
import json

import openai
import pytest

from conftest import conversations, tool_conversation


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def say(client, model, text, **options):
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], temperature=0, **options)


def test_models(client, model):
    found = client.models.retrieve(model)
    assert found.id == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


def test_chat_whole_and_streamed_are_equal(client, model):
    whole = say(client, model, "What is 12 + 30?")
    assert "42" in whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text, usage, finish = "", None, None
    for chunk in say(client, model, "What is 12 + 30?", stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    assert text == whole.choices[0].message.content
    assert finish == "stop"
    assert (usage.prompt_tokens, usage.completion_tokens) == (whole.usage.prompt_tokens, whole.usage.completion_tokens)


def test_thinking_is_apart(client, model):
    message = say(client, model, "Think step by step: 53 + 93 + 0 = ?").choices[0].message
    assert "146" in message.content and "<think>" not in message.content
    assert "53 + 93" in message.reasoning_content


def test_tool_call_and_its_result(client, model, server):
    messages, tools, text = tool_conversation()
    whole = client.chat.completions.create(model=model, messages=messages, tools=tools, temperature=0)
    call = whole.choices[0].message.tool_calls[0]
    assert whole.choices[0].finish_reason == "tool_calls"
    wanted = json.loads(text.replace("<tool_call>", "").replace("</tool_call>", ""))
    assert (call.function.name, json.loads(call.function.arguments)) == (wanted["name"], wanted["arguments"])
    name, arguments = None, ""
    for chunk in client.chat.completions.create(model=model, messages=messages, tools=tools, temperature=0, stream=True):
        for delta in (chunk.choices[0].delta.tool_calls or []):
            name = delta.function.name or name
            arguments += delta.function.arguments or ""
    assert (name, arguments) == (call.function.name, call.function.arguments)
    followed = client.chat.completions.create(model=model, temperature=0, tools=tools, messages=messages + [
        whole.choices[0].message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": call.id, "content": "42"}])
    assert followed.choices[0].finish_reason in ("stop", "tool_calls")
    named = {"type": "function", "function": {"name": call.function.name}}
    for choice, reason in (("required", "tool_calls"), (named, "stop")):
        forced = client.chat.completions.create(model=model, messages=messages, tools=tools, tool_choice=choice, temperature=0, max_tokens=60)
        assert forced.choices[0].message.tool_calls[0].function.name == call.function.name
        assert forced.choices[0].finish_reason == reason


def test_logprobs_n_seed_and_stop(client, model):
    answer = say(client, model, "What is 12 + 30?", logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert "".join(e.token for e in entries) == answer.choices[0].message.content
    for e in entries:
        assert e.logprob <= 0 and len(e.top_logprobs) == 3 and e.top_logprobs[0].token == e.token
    prompt = [{"role": "user", "content": conversations("story")[0]["messages"][0]["content"]}]
    ask = lambda: [c.message.content for c in client.chat.completions.create(
        model=model, messages=prompt, n=4, seed=5, temperature=1, max_tokens=40).choices]
    first = ask()
    assert first == ask()
    assert len(set(first)) > 1
    text = say(client, model, "Tell me a story.", max_tokens=40).choices[0].message.content
    cut = say(client, model, "Tell me a story.", max_tokens=40, stop=text[20:29])
    assert cut.choices[0].message.content == text[:text.index(text[20:29])]
    assert cut.choices[0].finish_reason == "stop"


def test_completions(client, model, server):
    whole = client.completions.create(model=model, prompt="The room of", max_tokens=2, temperature=0, logprobs=2, echo=True)
    choice = whole.choices[0]
    assert choice.text.startswith("The room of") and choice.finish_reason == "length"
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None and all(v <= 0 for v in choice.logprobs.token_logprobs[1:])
    assert choice.logprobs.text_offset[0] == 0
    assert [choice.text[o:].startswith(t) for o, t in zip(choice.logprobs.text_offset, choice.logprobs.tokens)] == [True] * len(choice.logprobs.tokens)
    streamed = "".join(c.choices[0].text for c in client.completions.create(
        model=model, prompt="The room of", max_tokens=2, temperature=0, stream=True))
    assert "The room of" + streamed == choice.text
    tokens = server.http.post("/tokenize", json={"prompt": "The room of"}).json()["tokens"]
    two = client.completions.create(model=model, prompt=[tokens, tokens], max_tokens=2, temperature=0)
    assert [c.text for c in two.choices] == [streamed] * 2
    assert server.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"] == "The room of"
    scored = client.completions.create(model=model, prompt="The room of", max_tokens=0, echo=True, logprobs=0)
    assert scored.choices[0].text == "The room of" and scored.usage.completion_tokens == 0
    assert scored.choices[0].logprobs.token_logprobs[1:] == choice.logprobs.token_logprobs[1:len(tokens)]


def test_responses(client, model):
    whole = client.responses.create(model=model, input="What is 12 + 30?", temperature=0)
    assert "42" in whole.output_text and whole.status == "completed"
    text, kinds = "", []
    for event in client.responses.create(model=model, input=[{"role": "user", "content": "What is 12 + 30?"}], temperature=0, stream=True):
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            text += event.delta
    assert text == whole.output_text
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 1
    thought = client.responses.create(model=model, input="Think step by step: 53 + 93 + 0 = ?", temperature=0)
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    cut = client.responses.create(model=model, input="What is 12 + 30?", temperature=0, max_output_tokens=1)
    assert cut.status == "incomplete" and cut.incomplete_details.reason == "max_output_tokens"


def test_errors(client, model):
    """Case 40."""
    with pytest.raises(openai.BadRequestError) as e:
        say(client, model, "Hi", extra_body={"top_k": -5})
    assert e.value.param == "top_k"
    with pytest.raises(openai.NotFoundError) as e:
        say(client, "gpt-9", "Hi")
    assert e.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        say(client, model, "x " * 40000)
    assert say(client, model, "Hi", max_tokens=4, extra_body={"an_unknown_field": {"x": [1]}}).choices


def test_max_tokens_beyond_the_context_is_clamped(client, model):
    """Case 40."""
    assert say(client, model, "What is 12 + 30?", max_tokens=10_000_000).choices[0].finish_reason == "stop"

"""The official OpenAI client against a real server."""
import json
import re
import typing

import openai
import pydantic
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


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 8},
        "mood": {"$ref": "#/$defs/mood"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 3},
        "place": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number", "minimum": -90, "maximum": 90}, "minItems": 2, "maxItems": 2}]},
    },
    "required": ["name", "age", "code", "mood", "place"],
    "additionalProperties": False,
    "$defs": {"mood": {"enum": ["good", "bad", "é\""]}},
}


def check_person(text):
    assert text.startswith("{") and not text.startswith("{{"), text
    person = json.loads(text)
    assert list(person) == [k for k in PERSON["properties"] if k in person]
    assert set(PERSON["required"]) <= set(person)
    assert 1 <= len(person["name"]) <= 20 and type(person["age"]) is int and 0 <= person["age"] <= 120
    assert re.fullmatch("[A-Z]{2}-[0-9]+", person["code"]) and len(person["code"]) <= 8
    assert person["mood"] in ("good", "bad", "é\"")
    tags = person.get("tags", [])
    assert len(tags) <= 3 and all(type(tag) is str and len(tag) <= 5 for tag in tags)
    place = person["place"]
    assert place is None or (len(place) == 2 and all(-90 <= x <= 90 for x in place))
    return person


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}


@pytest.fixture(scope="module")
def drafting(start):
    return {how: openai.OpenAI(base_url=start("--speculate", how).url + "/v1", api_key="none", max_retries=0) for how in ("mtp", "ngram")}


def test_json_schema_holds_for_any_text(client, model, drafting):
    """Case 27: 50 of 50, thinking or not, with drafts and without, which say the same."""
    thought = 0
    for i in range(50):
        text = f"Think step by step: {i + 3} + 93 + 0 = ?" if i % 2 else f"What is {i} + 30?"
        options = dict(model=model, messages=[{"role": "user", "content": text}], temperature=i % 3 / 2, seed=i, max_tokens=900,
                       response_format=format_of(PERSON))
        answers = [c.chat.completions.create(**options).choices[0] for c in (client, *drafting.values())]
        for answer in answers:
            assert answer.finish_reason == "stop"
            check_person(answer.message.content)
            assert answer.message.content == answers[0].message.content
        thought += hasattr(answers[0].message, "reasoning_content")
    assert thought >= 10


def test_json_object_stops_or_is_cut(client, model):
    for i in range(10):
        answer = say(client, model, "Hello", seed=i, max_tokens=60, response_format={"type": "json_object"}).choices[0]
        assert answer.message.content.startswith("{")
        assert answer.finish_reason in ("stop", "length")
        if answer.finish_reason == "stop":
            assert type(json.loads(answer.message.content)) is dict


def test_structured_output_streams_parses_and_refuses(client, model):
    class Colour(pydantic.BaseModel):
        red: bool

    class Point(pydantic.BaseModel):
        """A point in space."""
        x: int = pydantic.Field(ge=-5, le=5, description="across")
        kind: typing.Literal["dot", "cross"]
        colour: Colour | None = None
        tags: list[Colour] = pydantic.Field(max_length=2)

    whole = client.chat.completions.parse(model=model, messages=[{"role": "user", "content": "A point"}], temperature=0, max_tokens=900,
                                          response_format=Point)
    assert -5 <= whole.choices[0].message.parsed.x <= 5
    streamed = "".join(c.choices[0].delta.content or "" for c in say(client, model, "A point", max_tokens=900, stream=True,
                       response_format=format_of(Point.model_json_schema())) if c.choices)
    assert Point.model_validate_json(streamed)
    parsed = client.responses.parse(model=model, input="A point", temperature=0, max_output_tokens=900, text_format=Point)
    assert parsed.output_parsed.kind in ("dot", "cross")
    with pytest.raises(openai.BadRequestError) as e:
        say(client, model, "Hi", response_format=format_of({"type": "array", "uniqueItems": True}))
    assert "uniqueItems" in e.value.message and e.value.param == "response_format"

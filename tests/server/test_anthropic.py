"""The official Anthropic client against a real server."""
import anthropic
import pytest

from conftest import tool_conversation


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def test_message_whole_and_streamed_are_equal(client, model):
    question = [{"role": "user", "content": "What is 12 + 30?"}]
    whole = client.messages.create(model=model, max_tokens=50, messages=question, extra_body={"temperature": 0})
    assert "42" in whole.content[0].text and whole.stop_reason == "end_turn"
    with client.messages.stream(model=model, max_tokens=50, messages=question, extra_body={"temperature": 0}) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.content[0].text == text and final.stop_reason == "end_turn"
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_count_tokens_agrees_with_usage(client, model):
    arguments = dict(model=model, system="Be short.", messages=[{"role": "user", "content": [{"type": "text", "text": "Hello!"}]}])
    counted = client.messages.count_tokens(**arguments).input_tokens
    usage = client.messages.create(max_tokens=5, **arguments).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_thinking_is_a_block(client, model):
    message = client.messages.create(model=model, max_tokens=100, extra_body={"temperature": 0},
                                     messages=[{"role": "user", "content": "Think step by step: 53 + 93 + 0 = ?"}])
    assert [b.type for b in message.content] == ["thinking", "text"]
    assert "146" in message.content[1].text


def test_tool_use_and_result(client, model):
    conversation, openai_tools, _ = tool_conversation()
    tools = [{"name": t["function"]["name"], "description": t["function"]["description"], "input_schema": t["function"]["parameters"]}
             for t in openai_tools]
    messages = [m for m in conversation if m["role"] == "user"]
    options = dict(model=model, max_tokens=100, extra_body={"temperature": 0}, tools=tools, system=conversation[0]["content"])
    message = client.messages.create(messages=messages, **options)
    call = next(b for b in message.content if b.type == "tool_use")
    assert message.stop_reason == "tool_use" and isinstance(call.input, dict)
    with client.messages.stream(messages=messages, **options) as stream:
        streamed = next(b for b in stream.get_final_message().content if b.type == "tool_use")
    assert (streamed.name, streamed.input) == (call.name, call.input)
    followed = client.messages.create(**options, messages=messages + [
        {"role": "assistant", "content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 21 degrees"}]}])
    assert followed.content


def test_stop_sequence_and_limit(client, model):
    question = [{"role": "user", "content": "Tell me a story."}]
    text = client.messages.create(model=model, max_tokens=40, messages=question, extra_body={"temperature": 0}).content[0].text
    cut = client.messages.create(model=model, max_tokens=40, messages=question, extra_body={"temperature": 0}, stop_sequences=[text[20:29]])
    assert cut.stop_reason == "stop_sequence" and cut.stop_sequence == text[20:29]
    assert cut.content[0].text == text[:text.index(text[20:29])]
    short = client.messages.create(model=model, max_tokens=1, messages=question, extra_body={"temperature": 0})
    assert short.stop_reason == "max_tokens" and short.usage.output_tokens == 1


def test_errors(client, model):
    with pytest.raises(anthropic.BadRequestError) as e:
        client.messages.create(model=model, max_tokens=5, messages=[{"role": "king", "content": "x"}])
    assert e.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="nothing", max_tokens=5, messages=[{"role": "user", "content": "x"}])

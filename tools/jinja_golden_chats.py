"""Chat templates in the styles that models use, written for these tests, over generated conversations with tools and reasoning."""

import json
import random

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Small ones: one-liners, generation blocks, call blocks.
SMALL = [
    "{% for m in messages %}{{ m.role|upper }}: {{ m.content }}{{ eos_token if m.role == 'assistant' }}\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}A: {% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}\n{% else %}U: {{ m.content }}\n{% endif %}{% endfor %}",
    "{% macro turn(role) %}<{{ role }}>{{ caller() }}</{{ role }}>{% endmacro %}{% for m in messages %}{% call turn(m.role) %}{{ m.content or '' }}{% endcall %}{% endfor %}",
    "{{ messages|map(attribute='role')|join(',') }}|{{ messages|selectattr('role', 'in', ['user', 'tool'])|list|length }}|{{ messages|rejectattr('content')|list|length }}",
    "{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }} {{ m.role }}{% if loop.previtem is defined and loop.previtem.role == m.role %} again{% endif %}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{{ messages }}{{ tools }}",
    "{{ messages|tojson }}{% if tools %}{{ tools|tojson(indent=2) }}{% endif %}",
    "{% for role, group in messages|groupby('role') %}{{ role }}:{{ group|length }} {% endfor %}",
]


def tool(name, properties, required=()):
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": {"type": "object", "properties": properties, "required": list(required)}}}


TOOLS = [
    tool("get_weather", {"city": {"type": "string", "description": "The city's name"}, "unit": {"type": "string", "enum": ["C", "F"], "default": "C"}}, ["city"]),
    tool("search", {"query": {"type": "string"}, "limit": {"type": "integer", "default": 5}, "tags": {"type": "array", "items": {"type": "string"}}, "range": {"type": "object", "properties": {"from": {"type": "number"}, "to": {"type": ["number", "null"]}}}}, ["query"]),
    tool("now", {}),
    tool("plot", {"points": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number", "nullable": True}}}}, "kind": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}),
]

TEXTS = ["Hello!", "  What is 12 + 30?  ", "Say \"hi\" & <bye>\n\nthen stop.", "日本語で答えて 🙂", "multi\nline\ntext\n", "", "It's {{ not }} a {% template %}", "back\\slash\ttab"]
REPLIES = ["Sure.", "<think>\nLet me see.\n</think>\n\nThe answer is 42.", "\n\nspaced out\n", "<think>only thought", "a </think> b </think> c"]
ARGUMENTS = [{"city": "Oslo"}, {"query": "x \"y\"", "limit": 3, "tags": ["a", "é"], "range": {"from": 1.5, "to": None}}, {}, {"points": [{"x": 1, "y": 2.0}], "kind": True}]


def conversation(rng):
    messages = []
    if rng.random() < 0.4:
        messages.append({"role": rng.choice(["system", "system", "developer"]), "content": rng.choice(["You are brief.", " Padded rules. \n"])})
    for _ in range(rng.randrange(1, 4)):
        content = rng.choice(TEXTS)
        if rng.random() < 0.12:
            content = [{"type": "text", "text": content}, {"type": rng.choice(["image", "audio"])}]
        messages.append({"role": "user", "content": content})
        if rng.random() < 0.35:
            for _ in range(rng.randrange(1, 3)):
                calls = [{"id": f"call{rng.randrange(10000, 100000)}"[: rng.choice([9, 9, 9, 8])], "type": "function", "function": {"name": rng.choice(TOOLS)["function"]["name"], "arguments": rng.choice(ARGUMENTS + [json.dumps(ARGUMENTS[1])])}}
                         for _ in range(rng.choice([1, 1, 2]))]
                message = {"role": "assistant", "content": rng.choice(["", "Calling.", None, "<think>hm</think>Calling."]), "tool_calls": calls}
                if message["content"] is None and rng.random() < 0.5:
                    del message["content"]
                if rng.random() < 0.5:
                    message["reasoning_content"] = rng.choice(["I need a tool.", "\nthink\n"])
                messages.append(message)
                for call in calls:
                    messages.append({"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": rng.choice(["21 C", '{"ok": true}', "ünï", 12, {"content": "nested"}])})
        if rng.random() < 0.8:
            message = {"role": "assistant", "content": rng.choice(REPLIES)}
            if rng.random() < 0.3:
                message["reasoning_content"] = rng.choice(["Because.", "", None])
            messages.append(message)
    if rng.random() < 0.5:
        while messages and messages[-1]["role"] == "assistant":
            messages.pop()
    if rng.random() < 0.05:
        messages.append({"role": "narrator", "content": "Meanwhile"})
    return messages


def chat_cases(root):
    rng = random.Random(7)
    config = json.loads((root / "models" / "tiny-hybrid" / "tokenizer_config.json").read_text())
    large = [config["chat_template"], CHATML]
    contexts = []
    for _ in range(60):
        context = {"messages": conversation(rng), "tools": rng.choice([None, None, TOOLS[:1], TOOLS]), "add_generation_prompt": rng.random() < 0.6, "bos_token": "<s>", "eos_token": "</s>"}
        if rng.random() < 0.2:
            context["enable_thinking"] = rng.random() < 0.5
        if rng.random() < 0.2:
            context["tools_in_user_message"] = False
        contexts.append(context)
    contexts.append({"messages": [], "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"})
    for template in large + SMALL:
        for context in contexts:
            yield template, context

"""Chat templates in the styles that models use, written for these tests, over generated conversations with tools and reasoning."""

import json
import random

CHATML = """{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}
"""

# Header and end tokens around every turn; tools in the system turn or before the first question; a date line.
HEADERS = """{{- bos_token }}
{%- set today = date_line if date_line is defined else strftime_now("%d %b %Y") %}
{%- if tools is not defined %}{%- set tools = none %}{%- endif %}
{%- if tools_first is not defined %}
    {%- set tools_first = true %}
{%- endif %}
{#- Whatever role gave the rules, they come first; the rest is the talk. #}
{%- if messages and messages[0]['role'] in ['system', 'developer'] %}
    {%- set rules = messages[0]['content']|trim %}
    {%- set talk = messages[1:] %}
{%- else %}
    {%- set rules = '' %}
    {%- set talk = messages %}
{%- endif %}
{%- macro head(role) -%}{{ '<|h|>' + role + '<|/h|>\\n' }}{%- endmacro %}
{{- head('system') + 'Today: ' + today + '\\n' }}
{%- if tools is not none and tools_first %}
    {{- "Callable:\\n" }}
    {%- for t in tools %}
        {{- loop.index ~ '. ' }}{{- t | tojson(indent=4) }}
        {{- "\\n" }}
    {%- endfor %}
{%- endif %}
{{- rules }}
{{- "<|e|>" }}
{%- for m in talk %}
    {%- set before = '' %}
    {%- if loop.first and tools is not none and not tools_first %}
        {%- set before %}
            {%- for t in tools %}{{ t.function | tojson(indent=2, sort_keys=true) }}{{ '\\n' }}{% endfor %}
        {%- endset %}
    {%- endif %}
    {%- if 'tool_calls' in m and m.tool_calls %}
        {%- if m.tool_calls|length > 1 %}
            {{- raise_exception("one call in a turn, please; there are " ~ m.tool_calls|length) }}
        {%- endif %}
        {%- set f = m.tool_calls[0].function %}
        {{- head('assistant') -}}
        {{- '{"call": "' + f.name + '", "with": ' }}
        {{- f.arguments | tojson }}
        {{- "}<|e|>" }}
    {%- elif m.role == "tool" or m.role == "function" %}
        {{- head('result') }}
        {%- if m.content is mapping or (m.content is iterable and m.content is not string) %}
            {{- m.content | tojson }}
        {%- else %}
            {{- m.content }}
        {%- endif %}
        {{- "<|e|>" }}
    {%- else %}
        {{- head(m['role']) + before + m['content'] | trim + '<|e|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- head('assistant') }}
{%- endif %}
"""

# Reasoning is shown only after the last real question; runs of tool results share a turn; thinking can be switched off.
THINKING = """{%- macro flat(content, allow_media=true) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.type in ('image', 'audio') and allow_media -%}
                {{- '<|' ~ part.type ~ '|>' -}}
            {%- elif 'text' in part -%}
                {{- part.text -}}
            {%- else -%}
                {{- raise_exception('A part that is neither text nor media: ' ~ part) -}}
            {%- endif -%}
        {%- endfor -%}
    {%- elif content is not none and content is defined -%}
        {{- content|string -}}
    {%- endif -%}
{%- endmacro -%}
{%- if messages|length == 0 %}{{- raise_exception('Nothing to answer.') }}{%- endif %}
{%- set state = namespace(searching=true, question=-1) %}
{%- for m in messages[::-1] %}
    {%- if state.searching and m.role == 'user' %}
        {%- set words = flat(m.content)|trim %}
        {%- if not (words.startswith('<result>') and words.endswith('</result>')) %}
            {%- set state.searching = false %}
            {%- set state.question = loop.revindex0 %}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if state.searching %}{{- raise_exception('Nobody asked anything.') }}{%- endif %}
{%- set first_is_rules = messages[0].role == 'system' %}
{%- if first_is_rules or tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if first_is_rules %}{{- flat(messages[0].content, false)|trim }}{%- endif %}
    {%- if tools and tools is iterable and tools is not mapping %}
        {%- if first_is_rules %}{{- '\\n\\n' }}{%- endif %}
        {{- '<functions>' }}
        {%- for t in tools %}{{- '\\n' ~ t | tojson }}{%- endfor %}
        {{- '\\n</functions>' }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for m in messages %}
    {%- if m.role == 'system' %}
        {%- if not loop.first %}{{- raise_exception('Rules come first.') }}{%- endif %}
        {%- continue %}
    {%- endif %}
    {%- set said = flat(m.content) %}
    {%- if m.role == 'assistant' %}
        {%- set thought = '' %}
        {%- if m.reasoning_content is string %}
            {%- set thought = m.reasoning_content|trim %}
        {%- elif '</think>' in said %}
            {%- set thought = said.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
            {%- set said = said.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if loop.index0 > state.question and (loop.last or thought) %}
            {{- '<think>\\n' + thought + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- said|trim }}
        {%- for call in m.tool_calls or [] %}
            {%- set call = call.function if call.function is defined else call %}
            {%- if not loop.first or said|trim %}{{- '\\n' }}{%- endif %}
            {{- '<call name="' ~ call.name ~ '">' }}
            {%- if call.arguments is mapping %}
                {%- for key, value in call.arguments|items %}
                    {%- set shown = value if value is string else value|tojson|safe %}
                    {{- '\\n<' ~ key ~ '>' ~ shown ~ '</' ~ key ~ '>' }}
                {%- endfor %}
            {%- elif call.arguments is string %}
                {{- '\\n' ~ call.arguments }}
            {%- endif %}
            {{- '\\n</call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.previtem is undefined or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<result>' ~ said ~ '</result>' }}
        {%- if loop.nextitem is undefined or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif m.role == 'user' %}
        {{- '<|im_start|>user\\n' ~ said|trim ~ '<|im_end|>\\n' }}
    {%- else %}
        {{- raise_exception('Who is ' ~ m.role ~ '?') }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n<think>\\n' }}
    {%- if enable_thinking is defined and not enable_thinking %}{{- '\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

# Strict turns; the tools stand before the last question only; every call needs an id of nine characters.
ALTERNATING = """{%- set talk = messages | rejectattr("role", "equalto", "system") | list %}
{%- set rules = messages | selectattr("role", "equalto", "system") | map(attribute="content") | join("\\n") %}
{%- set questions = talk | selectattr("role", "equalto", "user") | list %}
{%- set turn = namespace(expected="user") %}
{%- for m in talk if not (m.role == "tool" or m.tool_calls is defined) %}
    {%- if m.role != turn.expected %}
        {{- raise_exception("turn " ~ loop.index ~ " belongs to the " ~ turn.expected ~ ", not to the " ~ m.role) }}
    {%- endif %}
    {%- set turn.expected = "assistant" if turn.expected == "user" else "user" %}
{%- endfor %}
{{- bos_token }}
{%- for m in talk %}
    {%- if m["role"] == "user" %}
        {%- if tools and m == questions[-1] %}
            {{- "<tools>[" }}
            {%- for t in tools | map(attribute="function") %}
                {{- "{" }}
                {%- for key, val in t.items() if key != "parameters" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}" }}
                {%- if not loop.last %}{{- ", " }}{%- endif %}
            {%- endfor %}
            {{- "]</tools>" }}
        {%- endif %}
        {{- "<q>" + (rules + "\\n\\n" if rules and loop.last else "") + m["content"] + "</q>" }}
    {%- elif m.tool_calls is defined and m.tool_calls is not none %}
        {{- "<calls>" }}
        {%- for c in m.tool_calls %}
            {%- if c.id is not defined or c.id|length != 9 %}
                {{- raise_exception("the id of call " ~ loop.index ~ " must have nine characters") }}
            {%- endif %}
            {%- set json = c.function|tojson(separators=(',', ':')) %}
            {{- json[:-1] + ',"id":"' + c.id + '"}' }}
            {%- if not loop.last %}{{- ";" }}{%- endif %}
        {%- endfor %}
        {{- eos_token }}
    {%- elif m["role"] == "assistant" %}
        {{- " " + m["content"].strip() + eos_token }}
    {%- else %}
        {%- set inner = m.content.content if m.content.content is defined else m.content %}
        {{- '<r id=' + m.tool_call_id[-3:] + '>' + inner|string + '</r>' }}
    {%- endif %}
{%- endfor %}
"""

# The assistant has another name; the rules go in front of the first question; content may come in parts.
TURNS = """{{ bos_token }}
{%- set names = {'assistant': 'model', 'user': 'human'} -%}
{%- set rules = namespace(text='') -%}
{%- if messages[0]['role'] == 'system' -%}
    {%- set rules.text = messages[0]['content'] if messages[0]['content'] is string else messages[0]['content'][0]['text'] -%}
{%- endif -%}
{%- for m in messages -%}
    {%- if m['role'] == 'system' -%}{%- continue -%}{%- endif -%}
    {%- if loop.previtem is defined and loop.previtem['role'] == m['role'] -%}
        {{ raise_exception("two turns of the " ~ m['role'] ~ " in a row") }}
    {%- endif -%}
    {{ '<turn:' ~ names.get(m['role'], m['role']) ~ '>\\n' }}
    {%- if rules.text -%}
        {{ rules.text ~ '\\n\\n' }}{%- set rules.text = '' -%}
    {%- endif -%}
    {%- if m['content'] is string -%}
        {{ m['content'] | trim }}
    {%- elif m['content'] is iterable -%}
        {%- for part in m['content'] -%}
            {%- if part['type'] == 'text' -%}
                {{ part['text'] | trim }}
            {%- else -%}
                {{ '<' + part['type'] + '_here>' }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("cannot show " ~ m['content']) }}
    {%- endif -%}
    {{ '\\n</turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<turn:model>\\n'}}
{%- endif -%}
"""

# One line, no white space of its own; all the rules first; a namespace remembers what kind of turn came before.
GATHERED = ("{% set ns = namespace(rules='', any=false, results=false, open=false) %}{%- for m in messages %}{%- if m['role'] == 'system' or m.role == 'developer' %}"
            "{%- if ns.any %}{% set ns.rules = ns.rules + '\\n\\n' + m['content'] %}{%- else %}{% set ns.rules = m['content'] %}{% set ns.any = true %}{%- endif %}{%- endif %}{%- endfor %}"
            "{{ bos_token }}{{ ns.rules }}{%- for m in messages %}{% set text = m['content'] %}{%- if m['role'] != 'tool' and ns.results %}{{'</results>'}}{% set ns.results = false %}{%- endif %}"
            "{%- if m['role'] == 'user' %}{%- set ns.open = true -%}{{'[H]' + text + '[A]'}}{%- endif %}"
            "{%- if m['role'] == 'assistant' %}{%- set ns.open = false -%}{% if text and '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
            "{%- if m['tool_calls'] is defined and m['tool_calls'] is not none %}{%- for c in m['tool_calls'] %}{%- if loop.first %}{{ text if text is not none else '' }}{{'<calls>'}}{%- else %}{{'\\n'}}{%- endif %}"
            "{{ c['type'] + '/' + c['function']['name'] + '\\n```json\\n' + c['function']['arguments']|tojson + '\\n```' }}{%- endfor %}{{'</calls>' + eos_token}}{%- else %}{{ text + eos_token }}{%- endif %}{%- endif %}"
            "{%- if m['role'] == 'tool' %}{%- set ns.open = true -%}{%- if not ns.results %}{{'<results>'}}{% set ns.results = true %}{%- else %}{{'\\n'}}{%- endif %}{{ text|string }}{%- endif %}{%- endfor -%}"
            "{% if ns.results %}{{'</results>'}}{% endif %}{% if add_generation_prompt and not ns.open %}{{'[A]<think>\\n'}}{% endif %}")

# Tool schemas written as TypeScript by recursive macros; channels; a result names the call before it.
TYPESCRIPT = """{%- macro ts(schema, level=0) -%}
    {%- set pad = "  " * level -%}
    {%- if schema.enum -%}
        {{- schema.enum | map("tojson") | join(" | ") -}}
    {%- elif schema.anyOf or schema.oneOf -%}
        {%- for one in schema.anyOf or schema.oneOf -%}
            {{- ts(one, level) -}}{%- if not loop.last %} | {% endif -%}
        {%- endfor -%}
    {%- elif schema.type is sequence and schema.type is not string -%}
        {{- schema.type | join(" | ") -}}
    {%- elif schema.type == "array" -%}
        {%- set inner = ts(schema['items'] or {}, level) -%}
        {{- (inner if inner is in ["string", "number", "boolean", "any"] else "Array<" + inner + ">") ~ ("[]" if "Array<" not in inner and "{" not in inner) -}}
    {%- elif schema.type == "object" and schema.properties -%}
        {{- "{" -}}
        {%- for key, value in schema.properties.items() -%}
            {{- "\\n" + pad + "  " + key + ("" if key in (schema.required or []) else "?") + ": " -}}
            {{- ts(value, level + 1) -}}
            {{- "," if not loop.last -}}
            {%- if value.description %} // {{ value.description }}{% endif -%}
        {%- endfor -%}
        {{- "\\n" + pad + "}" -}}
    {%- else -%}
        {{- {"integer": "number", "object": "object"}.get(schema.type, schema.type|default("any", true)) -}}
    {%- endif -%}
    {{- " | null" if schema.nullable -}}
    {%- if schema.default is defined %} /* {{ schema.default|tojson }} */{% endif -%}
{%- endmacro -%}
{%- macro declare(name, tools) -%}
    {{- "declare " + name + " {\\n" -}}
    {%- for f in tools|map(attribute="function") -%}
        {{- "/** " + f.description|default("", true) + " */ " + f.name + "(" -}}
        {%- if f.parameters.properties -%}{{- "p: " + ts(f.parameters) -}}{%- endif -%}
        {{- ");\\n" -}}
    {%- endfor -%}
    {{- "}" -}}
{%- endmacro -%}
{%- macro say(who, channel=none) -%}
    {{- "<|s|>" + who + ("<|c|>" + channel if channel else "") + "<|m|>" + caller() + "<|e|>" -}}
{%- endmacro -%}
{%- set effort = reasoning_effort|default("medium") -%}
{%- call say("system") -%}{{- strftime_now("%Y-%m-%d") ~ " effort=" ~ effort -}}{%- endcall -%}
{%- set has_rules = messages and messages[0].role in ("developer", "system") -%}
{%- if has_rules or tools -%}
    {%- call say("developer") -%}
        {%- if has_rules -%}{{- messages[0].content -}}{%- endif -%}
        {%- if tools -%}{{- declare("tools", tools) -}}{%- endif -%}
    {%- endcall -%}
{%- endif -%}
{%- set last = namespace(call=none) -%}
{%- for m in messages[1 if has_rules else 0:] -%}
    {%- if m.role == "assistant" and m.tool_calls -%}
        {%- set answered = namespace(yes=false) -%}
        {%- for later in messages[loop.index + (1 if has_rules else 0):] -%}
            {%- if later.role == "assistant" and "tool_calls" not in later -%}{%- set answered.yes = true -%}{%- break -%}{%- endif -%}
        {%- endfor -%}
        {%- if m.reasoning_content and not answered.yes -%}
            {%- call say("assistant", "thought") -%}{{- m.reasoning_content -}}{%- endcall -%}
        {%- endif -%}
        {%- set last.call = (m.tool_calls|first).function.name -%}
        {%- call say("assistant to=" + last.call, channel="call") -%}{{- (m.tool_calls|first).function.arguments|tojson -}}{%- endcall -%}
    {%- elif m.role == "assistant" -%}
        {%- if "<|c|>" in m.content -%}{{- raise_exception("a channel inside of content") -}}{%- endif -%}
        {%- call say("assistant", "final") -%}{{- m.content -}}{%- endcall -%}
        {%- set last.call = none -%}
    {%- elif m.role == "tool" -%}
        {%- if last.call is none -%}{{- raise_exception("a result without a call") -}}{%- endif -%}
        {%- call say(last.call + " to=assistant") -%}{{- m.content|tojson -}}{%- endcall -%}
    {%- else -%}
        {%- call say(m.role) -%}{{- m.content if m.content is string else m.content|tojson -}}{%- endcall -%}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|s|>assistant{%- endif -%}"""

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
    large = [config["chat_template"], CHATML, HEADERS, THINKING, ALTERNATING, TURNS, GATHERED, TYPESCRIPT]
    contexts = []
    for _ in range(52):
        context = {"messages": conversation(rng), "tools": rng.choice([None, None, TOOLS[:1], TOOLS]), "add_generation_prompt": rng.random() < 0.6, "bos_token": "<s>", "eos_token": "</s>"}
        if rng.random() < 0.2:
            context["enable_thinking"] = rng.random() < 0.5
        if rng.random() < 0.2:
            context["tools_first"] = False
        if rng.random() < 0.2:
            context["date_line"] = "a Monday"
        contexts.append(context)
    contexts.append({"messages": [], "tools": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"})
    for template in large + SMALL:
        for context in contexts:
            yield template, context

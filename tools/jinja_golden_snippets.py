"""Hand-written templates, one or more for every statement and rule of the language, and for every kind of error."""

CONTEXT = {
    "name": "World", "n": 3, "items": [1, 2, 3, 4], "words": ["beta", "Alpha", "gamma"], "empty": [], "nested": [[1, [2, 3]], [4]],
    "user": {"name": "Ann", "age": 30, "tags": ["x", "y"], "items": "shadow", "keys": 5, "update": 1},
    "people": [{"name": "Bo", "age": 5, "city": "Oslo"}, {"name": "Al", "age": 7, "city": "rome"}, {"name": "Cy", "age": 5, "city": "Rome"}],
    "tree": [{"v": 1, "kids": [{"v": 2, "kids": [{"v": 3, "kids": []}]}, {"v": 4, "kids": []}]}, {"v": 5, "kids": []}],
    "flag": True, "nothing": None, "text": "line one\nline two\n\nline four", "pi": 3.14159, "big": 18446744073709551615, "outer": "ctx", "range2": 2,
}

SNIPPETS = r"""
plain text
{{ name }}
{{ name + '!' }} {{ 'a' 'b' "c" }}
{{ undefined_name }}|{{ user.missing }}|{{ items[9] }}
{{ undefined_name.x }}
{{ undefined_name['x'] }}
{{ undefined_name() }}
{{ undefined_name + 1 }}
{{ user.missing.deeper }}
{{ nothing.x }}|{{ nothing.x is undefined }}
{{ nothing['a'] }}
{{ user.name }} {{ user['name'] }} {{ user.items }} {{ user['items'] }} {{ user['keys'] }} {{ user.keys() | list }}
{{ user.update }}|{{ user['update'] }}
{{ user.update({}) }}
{{ items.append(5) }}
{{ items.append }}|{{ items.pop is defined }}
{{ user.pop('name') }}
{{ user.__class__ }}|{{ ''.__class__ }}|{{ user._x }}
{{ items.0 }} {{ nested.0.1.0 }} {{ nested[0][1][0] }}
{{ true }} {{ True }} {{ none }} {{ None }} {{ false }} {{ 1.0 }} {{ 1e3 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e-7 }} {{ 10 ** 20 }}
{{ big }} {{ big + 1 }} {{ [big]|tojson }}
{{ 'tab\there' }} {{ 'nl\nx' }} {{ "q\"q" }} {{ 'it\'s' }} {{ '\\' }} {{ '\x41\u00e9\U0001F600' }} {{ '\101' }} {{ '\q' }} {{ 'é\é' }}
{{ '\u00' }}
{{ 'unterminated }}
{{ [1, 'a', none, true, 1.5, [2], (3,), {'k': 'v', 1: 2}] }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ 1, 2 }} {{ [] }} {{ {} }}
{{ {'a': 1, 'a': 2, 1: 'x', 1.0: 'y', true: 'z'} }}
{{ {[1]: 2} }}
{{ {(1, 2): 3}[(1, 2)] }}
{{ ["it's", 'say "x"', 'both\' "', '\n\t\x00\x7f\xa0é\u200b\U0001F600'] }}
{{ 1 + 2 * 3 ** 2 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 7.5 % 2 }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ 1 < 2 > 1 in [1] }}
{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 2 in items }} {{ 'name' in user }} {{ not 2 in items }}
{{ 1 < 'a' }}
{{ 1 in 5 }}
{{ 1 in 'a' }}
{{ 'yes' if flag }}|{{ 'yes' if not flag }}|{{ 'yes' if not flag else 'no' }}|{{ 'a' if false else 'b' if false else 'c' }}
{{ ('x' if false).y }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 ~ [1] ~ undefined_name }}
{{ 'a' + 1 }}
{{ [1] + [2] }} {{ (1,) + (2,) }} {{ [0] * 3 }} {{ 'ab' * 2 }} {{ 2 * 'ab' }} {{ 'x' * -1 }}
{{ name[0] }}{{ name[-1] }} {{ name[1:3] }} {{ name[::-1] }} {{ items[:2] }} {{ items[::2] }} {{ items[-2:] }} {{ items[5:] }}
{{ name[10] }}|{{ name['x'] }}
{{ nothing[1:] }}
{{ user[1:] }}
{{ 'héllo wörld🙂'[1] }} {{ 'héllo wörld🙂'[-1] }} {{ 'héllo wörld🙂'|length }} {{ '日本語'[1:] }}
{{ 5 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 5 is not even }} {{ not 5 is even }}
{{ x is defined }} {{ name is defined }} {{ user.zip is defined }} {{ x is undefined }} {{ nothing is none }} {{ nothing is not none }}
{{ name is string }} {{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is float }} {{ true is boolean }}
{{ user is mapping }} {{ items is sequence }} {{ name is sequence }} {{ user is sequence }} {{ user is iterable }} {{ 5 is iterable }} {{ items is mapping }}
{{ range is callable }} {{ name is callable }} {{ 1 is eq 1 }} {{ 1 is ne 1 }} {{ 1 is lt 2 }} {{ 3 is in [1, 3] }} {{ 'a' is in 'abc' }} {{ 1 is sameas 1 }} {{ true is sameas true }} {{ 1 is sameas true }}
{{ 'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }} {{ 'nope' is test }} {{ 'ABC' is upper }} {{ 'abc' is lower }} {{ 'a1' is lower }}
{{ 1 is foo }}
{{ 1|foo }}
{% if false %}{{ 1|foo }}{% endif %}ok
{% if true %}{{ 1|foo }}{% endif %}
{{ 1 if true else 1|foo }}
{% for x in [] %}{{ x|foo }}{% endfor %}
{% if n is foo %}{% endif %}
{{ 1 is odd is even }}
{{ 1 is eq 1 and 2 is eq 2 or false }} {{ 1 is not eq 2 }}
{% if n > 2 %}big{% elif n > 1 %}mid{% else %}small{% endif %}
{% if n > 5 %}big{% elif n > 2 %}mid{% elif n > 1 %}low{% else %}small{% endif %}
{% if empty %}a{% else %}b{% endif %}{% if items %}c{% endif %}{% if '' %}d{% endif %}{% if undefined_name %}e{% endif %}{% if 0.0 %}f{% endif %}
{% if not x is defined and n == 3: %}colon{% endif %}
{% for i in items %}{{ i }},{% endfor %}
{% for i in empty %}x{% else %}nothing{% endfor %}
{% for i in items if i is odd %}{{ loop.index }}:{{ i }}/{{ loop.length }} {% endfor %}
{% for i in items if i > 9 %}x{% else %}none of them{% endfor %}
{% for i in items %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}
{% for i in items %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}
{% for i in items %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }} {% endfor %}
{% for i in items %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}
{% for i in [1, 1, 2, 2, 1] %}{{ loop.changed(i) }} {% endfor %}
{% for i in items %}{% for j in words %}{{ loop.index }}{{ j[0] }}{% endfor %}{{ loop.index }};{% endfor %}
{% for i in items %}{% set outer_loop = loop %}{% for j in words %}{{ outer_loop.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }} {% endfor %}
{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{{ a }}{% endfor %}
{% for a, b in [1] %}{{ a }}{% endfor %}
{% for k, v in user.items() %}{{ k }}={{ v }};{% endfor %}
{% for k in user %}{{ k }} {% endfor %}{% for c in name %}{{ c }}.{% endfor %}
{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }} {% endfor %}{% for k, v in {'b': 1, 'a': 2}|dictsort(by='value', reverse=true) %}{{ k }}{{ v }} {% endfor %}
{% for k, v in user|items %}{{ k }} {% endfor %}{% for k, v in undefined_name|items %}{{ k }}{% endfor %}
{% for i in 5 %}{% endfor %}
{% for i in nothing %}{% endfor %}
{% for i in undefined_name %}x{% else %}empty{% endfor %}
{% for i in range(3) %}{{ i }}{% endfor %} {% for i in range(2, 8, 3) %}{{ i }}{% endfor %} {% for i in range(3, 0, -1) %}{{ i }}{% endfor %} {{ range(4)|list }} {{ range(4) }} {{ range(1, 9, 2)[1:3] }} {{ range(5)|length }} {{ 3 in range(5) }}
{{ range(100001) }}
{{ range(0, 1, 0) }}
{% for i in range(5) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}
{% for i in [1, 2] %}{% continue %}{% else %}else after continue{% endfor %}
{% for i in [1, 2] %}{% break %}{% else %}else after break{% endfor %}
{% for i in [1, 2] %}{{ i }}{% break %}{% endfor %}|{% for i in [1, 2] %}{% for j in [3, 4] %}{% if j == 4 %}{% break %}{% endif %}{{ i }}{{ j }}{% endfor %};{% endfor %}
{% break %}
{% continue %}
{% for i in [1] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% if true %}{% break %}{% endif %}
{% for x in items %}{% if loop.index is divisibleby 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in tree recursive %}{{ x.v }}{% if x.kids %}({{ loop(x.kids) }}){% endif %}{{ loop.depth }}{% if not loop.last %},{% endif %}{% endfor %}
{% for x in tree recursive %}{{ x.v }}{{ loop(x.kids) }}{% else %}.{% endfor %}
{% for x in items %}{{ loop(x) }}{% endfor %}
{% for x in items %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% for i in items %}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in [1, 2] %}{{ y }}{% set y = i %}{{ y }};{% endfor %}
{% for i in [1] %}{{ outer }}{% endfor %}{% set outer = 'set later' %}{{ outer }}
{{ outer }}{% set outer = 'set' %}{{ outer }}
{% if false %}{% set outer = 'set' %}{% endif %}{{ outer }}
{% for i in [1, 2] %}{% if i == 1 %}{% set outer = 'inner' %}{% endif %}{{ outer }} {% endfor %}{{ outer }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}{% set t = 1, %}{{ t }}
{% set a, b = [1] %}
{% set a = 5 %}{% set b = a %}{% set a = 6 %}{{ a }}{{ b }}
{% set 5 = 1 %}
{% set true = 1 %}
{% set user.name = 1 %}
{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}
{% set ns = namespace() %}{% for i in items %}{% set ns.total = (ns.total or 0) + i %}{% endfor %}{{ ns.total }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }} {{ ns }} {{ ns['a'] }}
{% set ns = namespace(found=false) %}{% for i in items %}{% if i == 3 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}
{% set ns = namespace(a=1) %}{% set ns.x, ns.y = 4, 5 %}{{ ns.x }}{{ ns.y }}
{% set ns = namespace(_a=1) %}
{% set ns = namespace() %}{% set ns._a = 1 %}
{% set notns = {} %}{% set notns.a = 1 %}
{% set nope.a = 1 %}
{% set ns = namespace(limit=2) %}{% for x in items if x <= ns.limit %}{{ x }}{% set ns.limit = 3 %}{% endfor %}
{% set block %}text {{ n }}{% endset %}[{{ block }}] {{ block|length }}
{% set block | upper | replace('T', 't') %}text {{ n }}{% endset %}[{{ block }}]
{% set x = 1 %}{% set y %}{% set x = 2 %}{{ x }}{% endset %}{{ x }}{{ y }}
{% filter upper %}shout {{ name }}{% endfilter %} {% filter replace('a', 'b')|title %}banana{% endfilter %}
{% filter indent(2) %}a
b{% endfilter %}
{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}
{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z }}
{% macro hi(who, greet='Hi', mark=greet[0]) %}{{ greet }} {{ who }}{{ mark }}{% endmacro %}{{ hi('Bo') }} {{ hi('Al', 'Yo') }} {{ hi(who='Cy', mark='?') }} {{ hi() }}
{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, a=3) }}
{% macro m(a) %}{{ a }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }} {{ m() }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=1) }}
{% macro m(a, a) %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{% macro m(a, b=2) %}[{{ a }},{{ b }}]{% endmacro %}{{ m(*[1]) }}{{ m(*[1, 3]) }}{{ m(**{'a': 5}) }}{{ m(1, **{'b': 6}) }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * fact(n - 1)|int }}{% endif %}{% endmacro %}{{ fact(6) }}
{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{{ v }}{% endmacro %}{% set v = 1 %}{{ a() }}{% set v = 2 %}{{ a() }}
{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% for x in [5] %}{{ m() }}{% endfor %}
{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}
{% for i in [1, 2] %}{% macro m() %}<{{ i }}>{% endmacro %}{{ m() }}{% endfor %}
{% macro outer_m() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer_m() }}{{ inner is defined }}
{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}inside {{ n }}{% endcall %}
{% macro each(list) %}{% for x in list %}{{ caller(x, loop.index) }};{% endfor %}{% endmacro %}{% call(x, i) each(items) %}{{ i }}={{ x }}{% endcall %}
{% macro opt() %}{{ caller() if caller else 'no caller' }}{% endmacro %}{{ opt() }}{% call opt() %}yes{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}
{% macro m(caller) %}{{ caller() }}{% endmacro %}
{% macro m(caller=none) %}{{ caller() if caller else 'none' }}{% endmacro %}{{ m() }}{% call m() %}block{% endcall %}
{% call 5 %}{% endcall %}
{% macro m(a, b=1) %}{% endmacro %}{{ m.name }} {{ m.arguments }} {{ m.catch_kwargs }} {{ m.catch_varargs }} {{ m.caller }} {{ m }}
{% macro m() %}{{ loop }}{% endmacro %}{% for x in [1] %}{{ m() }}{% endfor %}
{% macro tag(t) %}<{{ t }}>{% endmacro %}{{ tag('a') + tag('b') }} {{ tag('a')|length }} {{ tag('a') is string }}
{% raw %}{{ not rendered }} {% if %} {# no #}{% endraw %}
{% raw %}unclosed
{# comment #}visible{# multi
line #}
{# unclosed
{{ 1 }}{# {{ 2 }} #}{{ 3 }}
{%- if true -%}  trimmed  {%- endif -%}  x
  {% if true %}
    indented
  {% endif %}
after
  {%+ if true %}kept{% endif +%}
x
a  {{- name -}}  b
a
  {#- c -#}
b
{% generation %}gen {{ n }}{% set inner = 1 %}{{ inner }}{% endgeneration %}{{ inner }}
{% for i in items %}{% generation %}{{ i }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% block title %}block {{ n }}{% set zz = 2 %}{% endblock %}{{ zz }}
{% set early = 'seen' %}{% block b %}{{ early }}{% endblock %}{% for loopvar in [1] %}{% block c %}[{{ loopvar }}]{% endblock %}{% endfor %}
{% block x %}{% endblock %}{% block x %}{% endblock %}
{% print 1, 'a' %}
{% autoescape false %}{{ '<b>' }}{% endautoescape %}
{% include 'x' %}
{% if false %}{% include 'x' %}{% import 'y' as z %}{% from 'a' import b as c, d %}{% endif %}fine
{% extends 'base' %}
{% do items.append(1) %}
{% unknown %}
{% endif %}
{% if true %}
{% for x in items %}{% endif %}
{% for x items %}{% endfor %}
{% if %}{% endif %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ [1, 2 }}
{{ a b }}
{{ a.b.(c) }}
{{ 1..2 }}
{{ x! }}
{{ $x }}
{{ f(a=1, 2) }}
{{ f(**a, *b) }}
{{ f(a=1, a=2) }}
{% set %}{% endset %}
{% macro 5() %}{% endmacro %}
{% for loop in items %}{% endfor %}
{% for x in items %}{{ loop.index }}{% set loop = 1 %}{% endfor %}
{{ raise_exception('stop: ' ~ n) }}
{% if n == 3 %}{{ raise_exception('bad') }}{% endif %}
{% if n == 4 %}{{ raise_exception('bad') }}{% endif %}good
{{ raise_exception() }}
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %B %A %j %%') }}
{{ strftime_now }}{{ strftime_now() }}
{{ dict(a=1, b=2) }} {{ dict([('x', 1)], y=2) }} {{ dict({'q': 1}) }} {{ dict.fromkeys(['a', 'b'], 0) }} {{ dict() }}
{{ dict(1) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set _ = c.reset() %}{{ c.current }}
{% set j = joiner('|') %}{% for i in items %}{{ j() }}{{ i }}{% endfor %}
{{ user|tojson }} {{ user|tojson(indent=2) }} {{ [1, 2.5, none, true, 'é"\\\n<>&\u2028\x7f\x01']|tojson }} {{ {'b': 1, 'a': {'d': [], 'c': {}}}|tojson(indent=4, sort_keys=true) }}
{{ undefined_name|tojson }}
{{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }} {{ (1, 2)|tojson }} {{ 'é🙂'|tojson(ensure_ascii=true) }} {{ [1,[2,{'a':[]}]]|tojson(indent='--') }}
{{ {(1, 2): 3}|tojson }}
{{ range(3)|tojson }}
{{ items|map('string')|tojson }}
{{ [0.1, 1e100, 1e16, 123456789012345678, 1e-7, -0.0, 100.0]|tojson }} {{ 1e400 }} {{ -1e400 }} {{ 1e400 - 1e400 }} {{ [1e400]|tojson }}
{{ items|sum }} {{ items|max }} {{ items|min }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ words|sort(reverse=true)|first }} {{ empty|max }}|{{ empty|first }}|{{ empty|last }}
{{ people|map(attribute='name')|join(', ') }} {{ people|selectattr('age', 'equalto', 5)|map(attribute='name')|list }} {{ people|rejectattr('age', 'gt', 5)|list|length }} {{ people|sum(attribute='age') }}
{% for city, group in people|groupby('city') %}{{ city }}:{{ group|map(attribute='name')|join('+') }} {% endfor %}{{ (people|groupby('age'))[0].grouper }} {{ (people|groupby('age'))[0].list|length }} {{ (people|groupby('city', case_sensitive=true))|length }}
{{ people|sort(attribute='age,name')|map(attribute='name')|list }} {{ people|map(attribute='zip', default='?')|list }} {{ people|map('length')|list }} {{ people|selectattr('zip')|list }}
{{ [1, 2, 3, 4]|select('even')|list }} {{ items|reject('odd')|list }} {{ items|select('gt', 2)|list }} {{ [0, 1, '', 'a', none]|select|list }} {{ items|select('in', [1, 4])|list }}
{{ [3, 1, 2]|sort }} {{ [1, 'a']|sort }}
{{ 'abc'|list }} {{ 'a-b c'|title }} {{ 'hello'|center(11) }}| {{ text|indent }} {{ text|indent(2, true, true) }} {{ 'x'|default('y') }} {{ undefined_name|default('y') }} {{ ''|default('y', true) }} {{ ''|d('z', boolean=true) }}
{{ [1, 2, 3, 4, 5]|batch(2)|list }} {{ [1, 2, 3, 4, 5]|batch(3, 'x')|list }} {{ [1, 2, 3, 4, 5]|slice(2)|list }} {{ [1, 2, 3, 4, 5]|slice(3, 'x')|list }}
{{ '%s is %d and %.2f' % ('a', 5, 1.5) }} {{ '%s'|format('x') }} {{ '%(k)s'|format(k=5) }} {{ '{} {b} {0}'.format(1, b=2) }}
{{ '{} {b} {}'.format(1, 2, b=3) }} {{ '{0.name} {0[age]} {1[0]}'.format(user, items) }} {{ '{:>{w}}|'.format('x', w=5) }} {{ '{a[x]}'.format_map({'a': {'x': 1}}) }}
{{ '{0.__class__}'.format(1) }}
{{ ' a b '.strip() }}|{{ 'a,b'.split(',') }}|{{ ','.join(['a', 'b']) }}|{{ 'abc'.upper() }}|{{ 'a'.join([1]) }}
{{ user.get('name') }} {{ user.get('zip') }} {{ user.get('zip', 'none') }} {{ user.keys()|list }} {{ user.values()|list }} {{ user.items()|list }} {{ {'a': 1}.items() }} {{ {'a': 1}.keys() }} {{ {'a': 1}.values() }}
{{ items.index(3) }} {{ items.count(1) }} {{ items.index(9) }}
{{ user.items()|first }} {{ user.keys()|last }} {{ user|length }} {{ user|first }} {{ user|list }} {{ user.keys()[0] }}|{{ 'name' in user.keys() }} {{ user.items() is sequence }} {{ user.items() is iterable }}
{{ items|map('upper')|list }} {{ items|map('foo')|list }}
{{ items|map }}
{{ (items|map('string'))|length }}
{{ items|map('string')|list|length }} {{ items|reverse|list }} {{ items|reverse|first }} {{ 'abc'|reverse }} {{ (items|map('string')) is iterable }} {{ (items|map('string')) is sequence }}
{% set g = items|map('string') %}{{ g|join }}|{{ g|join }}|{{ g is defined }}
{{ '<b>'|escape }} {{ '<b>'|e|e }} {{ '<b>'|safe }} {{ ('<b>'|safe) + '<i>' }} {{ '<i>' + ('<b>'|safe) }} {{ ('<b>'|safe) ~ '<i>' }} {{ ('%s'|safe) % '<' }} {{ ('a<'|safe).replace('a', '<') }} {{ ['<b>'|safe] }} {{ '<'|forceescape }} {{ '<b>'|safe is escaped }} {{ ('<{}>'|safe).format('<') }} {{ ('-'|safe).join(['<', 'b']) }} {{ ('<b>'|safe)[0] }}
{{ 42|string + 'x' }} {{ '42'|int + 1 }} {{ '4.7'|int }} {{ 'x'|int }} {{ 'x'|int(-1) }} {{ '0x1F'|int(0, 16) }} {{ '1_000'|int }} {{ ' 5 '|int }} {{ '3.5'|float }} {{ 'x'|float }} {{ 'inf'|float }} {{ 5|float }} {{ none|int }} {{ true|int }} {{ 1e20|int }}
{{ 42.55|round }} {{ 42.55|round(1) }} {{ 2.5|round }} {{ 3.5|round }} {{ 0.5|round }} {{ 2.675|round(2) }} {{ 42|round }} {{ 45|round(-1) }} {{ 55|round(-1) }} {{ 42.51|round(1, 'floor') }} {{ 42.51|round(0, 'ceil') }} {{ 1234.5|round(-2) }} {{ -2.5|round|int }}
{{ 5.0 }} {{ 5.0|int }} {{ 5.0 == 5 }} {{ 0.1 + 0.2 }} {{ 1e15 }} {{ 1e16 }} {{ 123456789.0 * 10 }} {{ 1 / 3 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }}
{{ undefined_name|length }}{{ undefined_name|list }}{{ undefined_name|join }}{{ undefined_name|upper }}{{ undefined_name|first }}{{ undefined_name == other_undefined }}{{ undefined_name == none }}{{ undefined_name in [1] }}{{ 1 in undefined_name }}{{ [undefined_name] }}
{{ undefined_name < 1 }}
{{ undefined_name|int }}
{{ -undefined_name }}
{{ undefined_name ~ 'x' }} {{ not undefined_name }} {{ undefined_name or 'or' }} {{ undefined_name and 'and' }}|{{ undefined_name if undefined_name is defined else 'alt' }}
{{ 'a'.foo }}|{{ 'a'.foo() }}
{{ 5() }}
{{ user.name() }}
{{ name.upper }}{{ name.upper() }}
{{ (1).real }} {{ 1.5.is_integer() }} {{ 2.0.is_integer() }} {{ 5.bit_length() }}
{{ lorem|trim }} {{ text.splitlines() }} {{ text.split('\n')|length }} {{ text|wordcount }} {{ text|truncate(12) }} {{ text|truncate(12, true) }}
{{ [1,2,3,] }} {{ {'a':1,} }} {{ (1,2,) }} {{ range(3,)|list }}
{{ {'a': {'b': [10, 20]}}.a.b[1] }} {{ [[1, 2], [3, 4]][1][0] }} {{ 'abc'[1].upper() }} {{ ('a', 'b')[1] }} {{ "x".join(['a', 'b']).upper()[0] }}
{{ 'a' if true else 'b' ~ 'c' }} {{ ('a' if false else 'b') ~ 'c' }} {{ 1 + 1 if false else 2 }} {{ not true or true }} {{ not (true or true) }} {{ 1 in [1] and 2 in [2] }} {{ 'a' ~ 'b' == 'ab' }} {{ 1 + 1 ~ 1 }} {{ 2 * 3 ~ 4 }}
{{ -1|abs }} {{ (-1)|abs }} {{ - 5 + 3 }} {{ 3 - -2 }} {{ +5 }} {{ --5 }} {{ 'a'|upper + 'b' }} {{ 'a' + 'b'|upper }} {{ 1 if 'a'|upper == 'A' }} {{ not 'a'|upper == 'A' }}
{{ '{' }} {{ '}}' }} {{ "{%" }} {{ {'a': {'b': 1}}.a }} {{{'a': 1}['a']}} {{ {'a':{}} }}
{{ 1 }}{{ 2 }}}} {{ '}' }} }} %} #}
{ { {% if true %}{ {%- endif %} {{ '' }}{ % }
"""

MULTILINE = [
    "line 1\nline 2 {{ 1/0 }}\n", "{% if x %}\n\n{% endfor %}\n", "a\nb\n{{ foo bar }}\n", "{#\n\n#}\n{% nope %}", "{{\n\n1 +\n\n}}", "{% raw %}\n\n{% endraw %}\n{{ ! }}",
    "a\n\n{%- if true -%}\n\nb\n\n{%- endif %}\n\n{{ ( }}", "x\n  {% for i in [1,2] %}\n  {{ i }}\n  {% endfor %}\ny\n", "\n\n{{ 1 }}\n\n", "{{ 1 }}\r\n{{ 2 }}\r{{ 3 }}\n",
    "{% if true %}\r\n  a\r\n{% endif %}\r\n", "  {% if true %}  \n  a  \n  {% endif %}  \nb", "\t{# c #}\n x {# d #}\n", "{% set x %}\n a\n{% endset %}\n[{{ x }}]", "{{ 'a\nb' }}", "{{ 'a\r\nb' }}{{ 'x\\\ny' }}",
    "{% macro m() %}\n  in macro\n{% endmacro %}\n{{ m() }}{{ m() }}", "{% for i in [1,2,3] -%}\n  {{ i }}\n{%- endfor %}", "{%- for i in [1,2,3] %}\n  {{- i }}\n{% endfor -%}\n end",
    "a {%- raw -%}  b {{ x }}  {%- endraw -%}  c", "{% raw -%}\n x\n{%- endraw +%}\n y", "  {%- raw %} a {% endraw %}\nb", "{{ 1 -}}\n\n  {{- 2 }}\n", "{%+ if true -%} a {%+ endif -%} b", "a{{ '' }}   {% if true %}b{% endif %}\n", "", "\n", " ", "\n\n\n",
    "{{ x }}\n{% endif %}", "{% if true %}\n{% else %}\n{% else %}\n{% endif %}", "{% for x in [1] %}\n{{ x }}\n", "a\n{{ 'x }}\nb", "{% set a = [\n 1,\n 2,\n] %}\n{{ a }}\n", "{{ [\n1,\n2 3] }}", "\n\n{% call foo %}{% endcall %}", "{% macro\nm(\n) %}{% endmacro\n%}ok",
]


def snippet_cases():
    for line in SNIPPETS.strip("\n").split("\n"):
        yield line, CONTEXT
    for text in MULTILINE:
        yield text, {"x": 1}
    deep = "[" * 30 + "]" * 30
    yield "{{ " + deep + " }}", {}
    yield "{{ " + "+".join(["1"] * 60) + " }}", {}
    yield "{{ " + " ~ ".join(["'a'"] * 300) + " }}", {}
    yield "{% if true %}" * 15 + "x" + "{% endif %}" * 15, {}
    # Names in the context win over global functions.
    yield "{{ range }}{{ namespace }}", {"range": 1, "namespace": "ns"}
    yield "{{ messages[0]['content'] }}{{ messages[0].role }}{{ messages|length }}", {"messages": [{"role": "user", "content": "hi"}]}

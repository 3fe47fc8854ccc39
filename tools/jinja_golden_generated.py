"""Template cases made by combining values with operators, filters, tests, methods, slices and format strings."""

import random

TEXTS = ["", "a", "hello world", "  padded\t\n", "Héllo Wörld", "日本語テキスト", "a,b,,c", "line1\nline2\r\nline3\n", "MiXeD cAsE", "ß ﬁ ΑΣ",
         "🙂 smile", "x=1", "it's \"q\"", "<b>&</b>", "42", "-7.5", " 12 ", "0x1F", "tab\tsep", "<think>ab</think>cd"]
NUMBERS = [0, 1, -1, 7, -7, 255, 3.0, 2.5, -2.5, 0.1, 1e16, 1e-5, 123456789.123, 1e22, 10**15]
OTHERS = [None, True, False, [], [1, 2, 3], ["b", "A", "c"], [[1, 2], [3]], {}, {"a": 1}, {"b": [1, {"c": None}], "a": "x"},
          [1, "1", None, True, 2.5], [{"n": "x", "v": 2}, {"n": "Y", "v": 1}, {"v": 3}]]
VALUES = TEXTS + NUMBERS + OTHERS
CONTEXT = {"values": VALUES}


def each(expression, values=VALUES):
    """One case for every value, which the expression calls v."""
    return [(f"{{{{ {expression} }}}}", {"v": v}) for v in values]


def operators(rng):
    pairs = [(a, b) for a in VALUES for b in VALUES]
    for op in ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "~", "and", "or"]:
        for a, b in rng.sample(pairs, 24):
            if op == "%" and isinstance(a, str):
                continue
            yield f"{{{{ a {op} b }}}}", {"a": a, "b": b}
    numbers = [(a, b) for a in NUMBERS + [True, False] for b in NUMBERS + [True]]
    for op in ["+", "-", "*", "/", "//", "%", "<", ">="]:
        for a, b in rng.sample(numbers, 25):
            yield f"{{{{ a {op} b }}}}", {"a": a, "b": b}
    for a in [0, 1, 2, -2, 10, 2.5, -2.0, 0.0]:
        for b in [0, 1, 3, -1, 0.5, 2.0]:
            yield "{{ a ** b }}", {"a": a, "b": b}
    for v in VALUES:
        yield "{{ -v }}", {"v": v}
        yield "{{ +v }}|{{ not v }}", {"v": v}


FILTERS = ["abs", "capitalize", "count", "default('d')", "default('d', true)", "d", "dictsort", "escape", "first", "float", "float(9.5)",
           "forceescape", "int", "int(5)", "int(0, 16)", "items|list", "join", "join(', ')", "last", "length", "list", "lower", "max", "min",
           "replace('a', 'Z')", "replace('l', '', 1)", "reverse|list", "round", "round(1)", "round(2, 'floor')", "round(0, 'ceil')",
           "safe", "select|list", "reject|list", "sort", "sort(reverse=true)", "string", "sum", "title", "tojson", "tojson(indent=2)",
           "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)", "trim", "trim('a ')",
           "truncate(8)", "truncate(8, true, '~', 0)", "unique|list", "upper", "urlencode", "wordcount", "batch(2)|list", "slice(2)|list",
           "batch(2, 'x')|list", "slice(2, 'x')|list", "indent", "indent(2, true)", "indent('> ', first=true, blank=true)", "center(15)",
           "map('string')|list", "map('upper')|join('-')", "map(attribute='n')|list", "map(attribute='n', default='?')|list",
           "selectattr('n')|list", "rejectattr('n')|list", "selectattr('n', 'defined')|list", "selectattr('v', 'gt', 1)|list",
           "selectattr('n', 'equalto', 'x')|list", "groupby('n')|list", "groupby('v')|map(attribute='grouper')|list", "sort(attribute='v')",
           "sort(attribute='n,v')", "sum(attribute='v')", "join('/', attribute='v')", "min(attribute='v')", "filesizeformat", "format(1)", "attr('x')"]

TESTS = ["boolean", "callable", "defined", "undefined", "even", "odd", "false", "true", "float", "integer", "iterable", "lower", "upper",
         "mapping", "none", "number", "sequence", "string", "escaped", "divisibleby 3", "eq 1", "ne('a')", "in [1, 'a', none]", "gt 0",
         "sameas true", "lt('m')", "ge 2.5"]

METHODS = ["capitalize()", "casefold()", "center(9, '*')", "count('l')", "count('')", "endswith('d')", "endswith(('x', 'e'))", "expandtabs(4)",
           "find('l')", "find('o', 5)", "index('e')", "isalnum()", "isalpha()", "isascii()", "isdecimal()", "isdigit()", "isidentifier()", "islower()",
           "isnumeric()", "isprintable()", "isspace()", "istitle()", "isupper()", "join(['a', 'b'])", "join('xyz')", "ljust(8)", "lower()", "lstrip()",
           "lstrip('ha')", "partition(',')", "removeprefix('he')", "removesuffix('ld')", "replace('l', 'L')", "replace('', '.')", "replace('l', 'L', 1)",
           "rfind('l')", "rindex('a')", "rjust(8, '.')", "rpartition(' ')", "rsplit(',', 1)", "rsplit()", "rsplit(None, 1)", "rstrip()", "split()",
           "split(',')", "split(' ', 1)", "split('</think>')[-1]", "split(None, 1)", "splitlines()", "splitlines(true)", "startswith('h')", "startswith('e', 1)",
           "strip()", "strip('ad')", "swapcase()", "title()", "upper()", "zfill(6)", "nothing()", "split('')", "format(1)", "items()", "get('a')", "append(1)"]

SLICES = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[5:2:-1]", "[-3:]", "[:100]", "[100:]", "[1:3]", "[2:1]", "['a']", "[none]", "[1.5]", "[true]",
          "[::0]", "[-100:2]", "[3::-2]", ".a", ".items", "[:none:2]"]

PERCENT = ["%s", "%d", "%5d|", "%-5d|", "%05d", "%+d", "% d", "%x", "%X", "%o", "%#x", "%e", "%.3e", "%f", "%.2f", "%08.3f", "%g", "%G", "%r", "%10s|", "%-10s|", "%.3s",
           "%5.1f|", "%c", "%i", "%%", "100%% %s", "%(a)s", "%s %s", "%z", "%", "%.0f", "%#.3g", "%+.1e", "% 5d", "%a"]

BRACES = ["{}", "{0}{0}", "{:5}|", "{:<8}|", "{:>8}|", "{:^9}|", "{:*^9}|", "{:05}", "{:+}", "{: }", "{:,}", "{:_}", "{:x}", "{:#x}", "{:b}", "{:o}", "{:.2f}", "{:10.3f}|", "{:e}",
          "{:.3}", "{:%}", "{:.1%}", "{!r}", "{!s:>6}", "{{}}", "{0[0]}", "{0.a}", "{a}", "{", "}", "{:d}", "{:s}", "{:c}", "{:g}", "{:,.2f}", "{:=+8}", "{:é>6}", "{1}"]


def random_text_cases(rng, count):
    """Chains of text methods and filters on random text."""
    pieces = ["a", "B", " ", "\n", "é", "日", "<think>", "</think>", ",", "  ", "\t", "x", "🙂", "'", '"', "\\"]
    steps = [".strip()", ".split(' ')|join('_')", "|upper", ".lower()", "[::-1]", "[1:-1]", ".replace('a', 'bb')", "|trim", "|length", "|tojson", "|string", ".title()",
             ".split('</think>')[-1]", ".rstrip('\\n')", ".lstrip('\\n')", "|replace(' ', '')", "|list|join('.')", ".splitlines()|list", "|capitalize", ".count('a')",
             "|indent(2)", "|reverse", ".partition(',')|list", "|first", "|last", "|wordcount"]
    for _ in range(count):
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        yield "{{ v" + "".join(rng.choice(steps) for _ in range(rng.randrange(1, 4))) + " }}", {"v": text}


def random_expressions(rng, count):
    """Arithmetic and logic on random trees, to test precedence."""
    def tree(depth):
        if depth == 0:
            return rng.choice(["1", "2", "3", "0", "x", "y", "2.5", "true", "'s'", "none", "z"])
        kind = rng.random()
        if kind < 0.55:
            op = rng.choice(["+", "-", "*", "//", "%", "/", "==", "!=", "<", ">", "and", "or", "~", "in", "is"])
            if op == "is":
                return tree(depth - 1) + " is " + rng.choice(["defined", "number", "not none", "odd", "eq 2", "string"])
            return tree(depth - 1) + f" {op} " + tree(depth - 1)
        if kind < 0.65:
            return "not " + tree(depth - 1)
        if kind < 0.75:
            return "-" + tree(depth - 1)
        if kind < 0.85:
            return "(" + tree(depth - 1) + ")"
        if kind < 0.92:
            return "[" + tree(depth - 1) + ", " + tree(depth - 1) + "]"
        return tree(depth - 1) + " if " + tree(depth - 1) + " else " + tree(depth - 1)

    for _ in range(count):
        yield "{{ " + tree(rng.randrange(1, 4)) + " }}", {"x": 5, "y": -3}


def whitespace_cases(rng, count):
    """Random templates of text, tags and comments with all white space controls."""
    signs = ["", "", "-", "+"]
    for _ in range(count):
        out = ""
        depth = 0
        for _ in range(rng.randrange(3, 12)):
            out += rng.choice(["", " ", "\n", "  \n", "\n  ", "a", " b ", "\t", "c\n", "\n\n", "\r\n"])
            kind = rng.randrange(6)
            a, b = rng.choice(signs), rng.choice(signs)
            if kind == 0:
                out += "{{" + rng.choice(["", "-", "+"]) + " 'v' " + rng.choice(["", "-"]) + "}}"
            elif kind == 1:
                out += "{#" + a + " note " + b + "#}"
            elif kind == 2:
                out += "{%" + a + " if true " + b + "%}"
                depth += 1
            elif kind == 3 and depth:
                out += "{%" + a + " endif " + b + "%}"
                depth -= 1
            elif kind == 4:
                out += "{%" + a + " set x = 1 " + b + "%}"
            elif kind == 5:
                out += "{%" + a + " raw " + rng.choice(["", "-"]) + "%}" + rng.choice([" {{ r }} ", "\n{% x %}\n", ""]) + "{%" + rng.choice(signs) + " endraw " + rng.choice(signs) + "%}"
        while depth:
            out += "\n{% endif %}"
            depth -= 1
        yield out + rng.choice(["", "\n", "\n\n", " end"]), {}


def generated_cases():
    rng = random.Random(20250101)
    yield from operators(rng)
    few = [v for v in VALUES]
    for name in FILTERS:
        yield from each(f"v|{name}", rng.sample(few, 15))
        yield f"{{{{ nothing|{name} }}}}", {}
    for name in TESTS:
        yield from each(f"v is {name}", rng.sample(few, 12))
        yield f"{{{{ nothing is {name} }}}}", {}
    for method in METHODS:
        yield from each(f"v.{method}", rng.sample(TEXTS, 8) + rng.sample(OTHERS, 2))
    for part in SLICES:
        yield from each(f"v{part}", rng.sample(few, 14))
    for spec in PERCENT:
        yield from each(f"'{spec}' % v", rng.sample(few, 5))
        yield from each(f"'{spec}'|format(v)", rng.sample(NUMBERS, 4))
    for spec in BRACES:
        yield from each(f"'{spec}'.format(v)", rng.sample(few, 5) + rng.sample(NUMBERS, 4))
    for v in VALUES:
        yield "{{ v }}|{{ [v] }}|{{ {'k': v} }}|{{ v|string }}|{{ v ~ v }}", {"v": v}
        yield "{% for x in v %}[{{ loop.index }}/{{ loop.length }}:{{ x }}]{% else %}none{% endfor %}", {"v": v}
    yield from random_text_cases(rng, 500)
    yield from random_expressions(rng, 500)
    yield from whitespace_cases(rng, 400)

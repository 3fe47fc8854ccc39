#!/usr/bin/env python3
"""Records what Python's jinja2, set up as transformers does for chat templates, renders for a few thousand templates.

Writes tests/text/golden/jinja.tar.xz, read by tests/text/jinja_golden_test.cpp. Needs jinja2 3.1.6 or later.
With --check it writes nothing and fails if the files in it are not what it would write.
"""

import datetime
import io
import json
import pathlib
import re
import sys
import tarfile

try:
    import jinja2
    import jinja2.ext
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    sys.exit(print("SKIPPED: jinja2 is not installed"))
if tuple(map(int, jinja2.__version__.split(".")[:3])) < (3, 1, 6):
    sys.exit(print("SKIPPED: jinja2 is older than 3.1.6"))

from jinja_golden_chats import chat_cases
from jinja_golden_generated import generated_cases
from jinja_golden_programs import program_cases
from jinja_golden_snippets import snippet_cases

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOW = datetime.datetime.fromtimestamp(1_700_000_000, datetime.timezone.utc)


class Generation(Extension):
    """{% generation %} renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class TemplateDict:
    def __call__(self, *args, **kwargs):
        return dict(*args, **kwargs)

    def fromkeys(self, *args, **kwargs):
        return dict.fromkeys(*args, **kwargs)


class TemplateNamespace(jinja2.utils.Namespace):
    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        attributes = dict(*args, **kwargs)
        for name in attributes:
            TemplateNamespace.check(name)
        jinja2.utils.Namespace.__init__(self, attributes)

    def __setitem__(self, name, value):
        TemplateNamespace.check(name)
        jinja2.utils.Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError("underscore-prefixed attribute")


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: NOW.strftime(format)
    env.globals["dict"] = TemplateDict()
    env.globals["namespace"] = TemplateNamespace
    return env


def record(name, cases):
    """The file's name and bytes. cases: (template, context) pairs. A case that fails in Python is recorded as null and must fail here too."""
    env = environment()
    templates, contexts, compiled, lines, out = {}, {}, {}, {}, []
    seen = set()
    for source, context in cases:
        text = json.dumps(context)
        if (source, text) in seen:
            continue
        seen.add((source, text))
        t = templates.setdefault(source, len(templates))
        c = contexts.setdefault(text, len(contexts))
        if source not in compiled:
            try:
                compiled[source] = env.from_string(source)
            except jinja2.TemplateSyntaxError as error:
                compiled[source] = None
                lines[str(t)] = error.lineno
            except (SyntaxError, ValueError, RecursionError):
                compiled[source] = None
        result = None
        if compiled[source] is not None:
            try:
                result = compiled[source].render(**json.loads(text))
                result.encode("utf-8")
            except UnicodeEncodeError:
                continue
            except Exception:  # noqa: BLE001  every failure of a template counts the same
                result = None
        if result is not None and (" at 0x" in result or re.search(r"\dj\)", result)):
            continue  # an object's address; a complex number, which the engine does not have
        out.append([t, c, result])
    golden = {"templates": list(templates), "contexts": [json.loads(c) for c in contexts], "cases": out, "lines": lines}
    body = ",\n".join(
        f"{json.dumps(key)}: [\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in value) + "\n]"
        if isinstance(value, list)
        else f"{json.dumps(key)}: {json.dumps(value)}"
        for key, value in golden.items()
    )
    data = ("{\n" + body + "\n}\n").encode()
    failed = sum(case[2] is None for case in out)
    print(f"{name}: {len(out)} cases, {failed} of them errors, {len(data)} bytes")
    return f"{name}.json", data


def main():
    archive = ROOT / "tests" / "text" / "golden" / "jinja.tar.xz"
    files = dict([record("chats", chat_cases(ROOT)), record("generated", generated_cases()),
                  record("programs", program_cases()), record("snippets", snippet_cases())])
    if sys.argv[1:] == ["--check"]:
        with tarfile.open(archive) as there:
            old = {member.name: there.extractfile(member).read() for member in there}
        if old != files:
            wrong = [name for name in old.keys() | files.keys() if old.get(name) != files.get(name)]
            sys.exit(f"{archive}: {', '.join(sorted(wrong))}: not what jinja2 {jinja2.__version__} renders")
        return
    with tarfile.open(archive, "w:xz", preset=9) as out:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()

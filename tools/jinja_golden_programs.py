"""Random small programs over few variable names: who sees which assignment is decided by Jinja's scoping rules."""

import random

NAMES = ["a", "b", "c", "ctx"]


class Program:
    def __init__(self, rng):
        self.rng = rng
        self.macros = []
        self.loops = 0
        self.budget = rng.randrange(3, 11)

    def value(self):
        r = self.rng
        return r.choice([r.choice(NAMES), r.choice(NAMES), str(r.randrange(9)), f"{r.choice(NAMES)} ~ {r.choice(NAMES)}", f"({r.choice(NAMES)} or {r.randrange(9)})", "loop.index" if self.loops else "7",
                         "ns.v", f"{r.choice(NAMES)}|default('-')"])

    def show(self):
        r = self.rng
        kind = r.randrange(8)
        if kind == 0 and self.macros:
            return "{{ " + r.choice(self.macros) + f"({self.value()}) }}}}"
        if kind == 1 and self.loops:
            return "{{ loop.index }}" + r.choice(["", "{{ loop.last }}", "{{ loop.previtem }}"])
        if kind == 2:
            return "{{ ns.v }}"
        return "{{ " + r.choice(NAMES) + " }}"

    def test(self):
        r = self.rng
        return r.choice(["true", "false", f"{r.choice(NAMES)}", f"{r.choice(NAMES)} is defined", f"not {r.choice(NAMES)}", "ns.v is odd", f"{self.value()} == {self.value()}"])

    def body(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))

    def statement(self, depth):
        r = self.rng
        self.budget -= 1
        if depth <= 0 or self.budget < 0:
            return self.show() + r.choice([";", ",", ""])
        kind = r.randrange(14)
        if kind <= 2:
            return "{% set " + r.choice(NAMES) + " = " + self.value() + " %}"
        if kind == 3:
            return "{% set " + f"{r.choice(NAMES)}, {r.choice(NAMES)} = {self.value()}, {self.value()}" + " %}"
        if kind == 4:
            out = "{% if " + self.test() + " %}" + self.body(depth - 1)
            if r.random() < 0.4:
                out += "{% elif " + self.test() + " %}" + self.body(depth - 1)
            return out + ("{% else %}" + self.body(depth - 1) if r.random() < 0.5 else "") + "{% endif %}"
        if kind in (5, 6):
            head = "{% for " + r.choice(NAMES) + " in " + r.choice(["[1, 2]", "[5]", "'xy'", "[]", "range(3)", "ctx"])
            if r.random() < 0.25:
                head += " if " + self.test()
            self.loops += 1
            out = head + " %}" + self.body(depth - 1)
            if r.random() < 0.2:
                out += "{% if " + self.test() + " %}{% " + r.choice(["break", "continue"]) + " %}{% endif %}" + self.show()
            self.loops -= 1
            return out + ("{% else %}" + self.body(depth - 1) if r.random() < 0.3 else "") + "{% endfor %}"
        if kind == 7:
            name = "m" + str(len(self.macros))
            loops, self.loops = self.loops, 0
            parameters = r.choice(["", r.choice(NAMES), f"{r.choice(NAMES)}={self.value()}", "x=1"])
            out = "{% macro " + name + "(" + parameters + ") %}<" + self.body(depth - 1) + r.choice(["", "{{ varargs }}", "{{ caller() if caller }}"]) + ">{% endmacro %}"
            self.loops = loops
            self.macros.append(name)
            return out
        if kind == 8:
            return "{% set " + r.choice(NAMES) + " %}" + self.body(depth - 1) + "{% endset %}"
        if kind == 9:
            return "{% with " + r.choice(NAMES) + " = " + self.value() + " %}" + self.body(depth - 1) + "{% endwith %}"
        if kind == 10:
            return "{% filter upper %}" + self.body(depth - 1) + "{% endfilter %}"
        if kind == 11:
            return "{% set ns.v = " + self.value() + " %}"
        if kind == 12 and self.macros:
            loops, self.loops = self.loops, 0
            out = "{% call " + r.choice(self.macros) + "() %}" + self.body(depth - 1) + "{% endcall %}"
            self.loops = loops
            return out
        return r.choice(["{% generation %}" + self.show() + "{% endgeneration %}", "{% block b" + str(self.budget) + " %}" + self.show() + "{% endblock %}"])

    def text(self):
        return "{% set ns = namespace(v=1) %}" + "".join(self.statement(3) for _ in range(self.rng.randrange(2, 6))) + "|" + "".join("{{ " + n + " }}." for n in NAMES)


def program_cases():
    rng = random.Random(99)
    for _ in range(700):
        yield Program(rng).text(), {"ctx": "C"}

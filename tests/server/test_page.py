"""The chat page in a real browser. Screenshots go to build/screenshots."""
import shutil

import pytest

from conftest import ROOT, conversations

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
SHOTS = ROOT / "build/screenshots"


@pytest.fixture(scope="module")
def browser():
    SHOTS.mkdir(parents=True, exist_ok=True)
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(server, browser):
    contexts = []

    def opener(**options):
        context = browser.new_context(bypass_csp=True, **options)  # wait_for_function evaluates strings, which the page forbids
        contexts.append(context)
        page = context.new_page()
        page.problems = []
        page.on("pageerror", lambda e: page.problems.append(str(e)))
        page.on("console", lambda m: page.problems.append(m.text) if m.type == "error" else None)
        page.goto(server.url)
        page.wait_for_selector("#model option", state="attached")
        return page

    yield opener
    for context in contexts:
        for page in context.pages:
            assert not page.problems, page.problems
        context.close()


def send(page, text):
    page.fill("#input", text)
    page.press("#input", "Enter")
    page.wait_for_selector(".regenerate", timeout=60_000)


def test_a_message_is_answered(open_page, server):
    page = open_page()
    page.screenshot(path=SHOTS / "empty.png")
    send(page, "What is 12 + 30?")
    answer = page.locator(".turn.assistant")
    assert "42" in answer.locator(".body").inner_text()
    foot = answer.locator(".foot").inner_text()
    assert "tokens" in foot and "tok/s" in foot and "prompt" in foot
    page.keyboard.press("Alt+n")
    people = ("Vito", "Ada", "Tara", "Xena", "Mona", "Rosa", "Kira", "Bela", "Kate", "Zoe")
    send(page, "Remember these facts. " + " ".join(f"The room of {name} is {1234 + i}." for i, name in enumerate(people)))
    send(page, "Think step by step: 53 + 93 + 0 = ?")  # after more than a page of 64 tokens, so that some is cached
    assert page.locator("details.thinking").count() == 1
    page.screenshot(path=SHOTS / "light.png")
    first = page.locator(".turn.assistant .body").last.inner_text()
    page.keyboard.press("Alt+r")
    page.wait_for_selector(".regenerate", timeout=60_000)
    assert page.locator(".turn.assistant").count() == 2
    assert first
    page.reload()
    assert page.locator(".turn.user").count() == 2
    page.keyboard.press("Alt+n")
    assert page.locator(".turn").count() == 0
    facts, _, question = [m["content"] for m in conversations("recall")[0]["messages"]]
    send(page, facts)
    send(page, question)
    assert "cached" in page.locator(".turn.assistant .foot").last.inner_text()


def test_stop_ends_the_generation(open_page, server):
    page = open_page()
    page.keyboard.press("Alt+p")
    page.fill("[name=system]", "Answer.")
    page.fill("[name=temperature]", "0")
    page.screenshot(path=SHOTS / "parameters.png")
    page.keyboard.press("Escape")
    page.route("**/v1/chat/completions", lambda route: route.continue_(post_data=route.request.post_data.replace(
        '"stream":true', '"stream":true,"ignore_eos":true')))
    page.fill("#input", "Tell me a story.")
    page.press("#input", "Enter")
    page.wait_for_selector("#send:has-text('Stop')")
    page.wait_for_selector(".turn.assistant .body p")
    page.keyboard.press("Escape")
    page.wait_for_selector(".regenerate")
    assert "stopped" in page.locator(".turn.assistant .foot").inner_text()
    server.idle()


MARKDOWN = """# Title

A **bold** and *soft* word, `code`, and [a link](https://example.org/a?b=1).

- one
- two with `x < y`

1. first
2. second

> quoted

| a | b |
|---|---|
| 1 | <b>2</b> |

```python
def f(x):
    return x < 1 && "<script>"
```
Line one
line two <img src=x onerror=alert(1)>"""


@pytest.mark.parametrize("name,options", [
    ("dark", dict(color_scheme="dark")),
    ("phone", dict(viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True)),
    ("phone-dark", dict(viewport={"width": 390, "height": 844}, device_scale_factor=2, is_mobile=True, has_touch=True, color_scheme="dark")),
])
def test_markdown_and_looks(open_page, name, options):
    page = open_page(**options)
    page.evaluate("text => { turns = [{role: 'user', content: 'Show me Markdown, please'}, {role: 'assistant', content: text, reasoning: 'Which parts?', "
                  "stats: {output: 120, rate: 81.5, prompt: 300, cached: 256, first: 41}}]; renderAll(); }", MARKDOWN)
    body = page.locator(".turn.assistant .body")
    assert body.locator("pre code").inner_text() == 'def f(x):\n    return x < 1 && "<script>"'
    for selector, count in {"h1": 1, "strong": 1, "em": 1, "ul li": 2, "ol li": 2, "blockquote": 1, "td": 2, "a": 1, "img": 0, "b": 0, "script": 0}.items():
        assert body.locator(selector).count() == count, selector
    assert body.locator("td").last.inner_text() == "<b>2</b>"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=SHOTS / f"{name}.png")


def test_keyboard_reaches_everything(open_page):
    page = open_page()
    assert page.evaluate("document.activeElement.id") == "input"
    seen = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement.id || document.activeElement.textContent"))
    assert {"model", "new", "open-settings", "theme", "send"} <= seen
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("Alt+d")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before

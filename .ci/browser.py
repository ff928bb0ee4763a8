"""Opens the Space and the site in Chromium, does what a visitor does, and takes a screenshot: see `browser`."""

import functools
import http.server
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[1]
SPACE = ROOT / "examples" / "space"
WIDTHS = (1280, 390)  # pixels, of a laptop and of a telephone
# Blocks of code that are wider than their box, and whether the page is wider than the window.
CUT_OFF = """[...document.querySelectorAll("pre > code")].filter(code => code.scrollWidth > code.clientWidth + 1)
  .map(code => code.textContent.slice(0, 60)).concat(document.body.scrollWidth > innerWidth ? ["the page"] : [])"""
# Words that the page's examples have twice, and what is nearest to each of the two.
EXAMPLES = {
    "bank": ["We walked along the bank of the river", "He put all his money in the bank"],
    "bear": ["I can not bear to see you", "A brown bear was asleep"],
}
MAX_BYTES = 150_000  # of the screenshot
sys.path.insert(0, str(SPACE))
expect.set_options(timeout=60_000)  # a machine may be busy


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Says how long something took."""
    start = time.perf_counter()
    yield
    sys.stdout.write(f"{time.perf_counter() - start:6.2f} s  {what}\n")


def visit(page: Page, address: str) -> None:
    """Opens the page and waits for the first answers."""
    page.goto(address)
    expect(page.locator("#surprisal .word")).not_to_have_count(0)
    expect(page.locator("#table tr").nth(1)).to_contain_text("The road turns to the left")


def use(page: Page) -> None:
    """Clicks a word, moves the mix, gives bad input, and reads another text."""
    first, text = page.locator("#table tr").nth(1), page.locator("#text textarea")
    with timed("a click on a word, until its nearest occurrences show"):
        page.locator("#words").get_by_text("left").first.click()
        expect(first).to_contain_text("He left the room")
    with timed("a weight of the mix, until the table follows"):
        before = first.locator("td").last.inner_text()
        page.locator("#mix input[type=number]").first.fill("0")
        page.keyboard.press("Tab")
        expect(first.locator("td").last).not_to_have_text(before)
    with timed("an empty text"):
        text.fill(" ")
        page.locator("#read").click()
        expect(page.get_by_text("The text is empty. Type at least one word.")).to_be_visible()
    with timed("another text, until its surprisal and nearest occurrences show"):
        text.fill("A <b>bear</b> ran away.")
        page.locator("#read").click()
        expect(page.locator("#surprisal .forward")).to_contain_text("ran")
        expect(page.locator("#table")).to_contain_text("A brown bear was asleep")
    for word, nearest in EXAMPLES.items():
        with timed(f"a click on the example of {word!r}, and on its two occurrences"):
            page.locator("#examples").get_by_text(word).first.click()
            expect(page.locator("#surprisal .forward")).to_contain_text(word)
            for index, text in enumerate(nearest):
                page.locator("#words").get_by_text(word).nth(index).click()
                expect(first).to_contain_text(text)


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def read_site(browser: Browser, site: Path, errors: list[str]) -> None:
    """Opens each page of the built site at each width; appends what is cut off there to `errors`."""
    handler = functools.partial(Files, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for width in WIDTHS:
            page = new_page(browser, width, errors)
            for file in sorted(site.rglob("index.html")):
                name = file.parent.relative_to(site)
                page.goto(f"http://127.0.0.1:{server.server_port}/{name}/")
                errors += [f"cut off at {width} pixels on {name}: {what}" for what in page.evaluate(CUT_OFF)]
        server.shutdown()


def new_page(browser: Browser, width: int, errors: list[str]) -> Page:
    """A window whose errors of JavaScript and of its console are appended to `errors`."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="light")
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    return page


def take_screenshot(page: Page, path: Path) -> None:
    """Writes the whole page as a small PNG."""
    page.screenshot(path=path, full_page=True)
    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)
    size = path.stat().st_size
    sys.stdout.write(f"{path}: {size:,} bytes\n")
    if size > MAX_BYTES:
        sys.exit(f"the screenshot must have at most {MAX_BYTES:,} bytes.")


def main(screenshot: Path) -> None:
    """Starts the Space here and a browser for it."""
    with timed("importing the Space and its first texts"):
        import app

        app.warm_up()
    with timed("starting its server"):
        _, address, _ = app.demo.launch(**app.LAUNCH, prevent_thread_lock=True, quiet=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        errors: list[str] = []
        page = new_page(browser, WIDTHS[0], errors)
        with timed("opening the page, until everything shows"):
            visit(page, address)
        use(page)
        visit(page, address)
        take_screenshot(page, screenshot)
        with timed("all pages of the site, at two widths"), tempfile.TemporaryDirectory() as site:
            build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", site]
            subprocess.run(build, cwd=ROOT, check=True)
            read_site(browser, Path(site), errors)
        browser.close()
    app.demo.close()
    if errors:
        sys.exit("\n".join(errors))


main(Path(sys.argv[1]))

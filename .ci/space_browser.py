"""Opens the Space in Chromium, does what a visitor does, and takes the screenshot: see `space-browser`."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

SPACE = Path(__file__).parents[1] / "examples" / "space"
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
        page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        with timed("opening the page, until everything shows"):
            visit(page, address)
        use(page)
        visit(page, address)
        take_screenshot(page, screenshot)
        browser.close()
    app.demo.close()
    if errors:
        sys.exit(f"errors of the page: {errors}")


main(Path(sys.argv[1]))

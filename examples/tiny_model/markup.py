"""Turns files of several forms into paragraphs of plain text.

A form is a container and a layout, such as `json:plain_text pages`: the strings under the key `plain_text`, laid out
as pages. Containers are `file`, `json:KEY`, `xml:TAG` and `csv:COLUMN`; layouts are functions of `LAYOUTS`.
"""

import csv
import html
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

FRONT_MATTER = re.compile(r"\A---\s*\n.*?\n---\s*\n", re.DOTALL)
CODE = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
NOT_TEXT = re.compile(
    r"<!--.*?-->|<(script|style|table|pre|code|s|svg|iframe)\b.*?</\1\s*>|\{%.*?%\}|\{\{.*?\}\}",
    re.DOTALL | re.IGNORECASE,
)
BREAKS = re.compile(r"</?(?:p|br|div|li|ul|ol|h[1-6]|tr|td|th|blockquote|section)\b[^>]*>", re.IGNORECASE)
TAGS = re.compile(r"</?[A-Za-z][^<>]*>")
IMAGES = re.compile(r"!\[[^\]]*\]\([^()]*(?:\([^()]*\)[^()]*)*\)")
LINKS = re.compile(r"\[([^\[\]]*)\](?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\[[^\]]*\])")
MARKS = re.compile(r"\*{1,3}|(?<![A-Za-z0-9])_{1,2}(?=\S)|(?<=\S)_{1,2}(?![A-Za-z0-9])|\\(?=[^A-Za-z0-9\s])|`")
NOTES = re.compile(r"\[\^[^\]]*\]:?")
# Of Markdown: lines of tables, rules, definitions of links, `:::` blocks and keys left by broken front matter.
MARKDOWN_NOISE = re.compile(r"\s*(?:\||[-=*_|: ]{3,}$|:::|\[[^\]]+\]:\s|[{}]|import |export )")
MARKDOWN_START = re.compile(r"\s*(?:#{1,6}\s+|>\s?|[-*+•]\s+|\d{1,3}[.)]\s+|[A-Za-z][.)]\s+)")
PAGE_NUMBER = re.compile(r"\s*(?:-\s*\d+\s*-|\d+|Page \d+( of \d+)?)\s*$")


def read_paragraphs(content: bytes, form: str) -> list[str]:
    """The paragraphs of a file, each on one line.

    Raises:
        ValueError: if the form is unknown or the contents are not of this form.
    """
    container, _, layout = form.partition(" ")
    kind, _, key = container.partition(":")
    if kind not in CONTAINERS or layout not in LAYOUTS:
        raise ValueError(f"unknown form {form!r}; containers {', '.join(CONTAINERS)}, layouts {', '.join(LAYOUTS)}")
    paragraphs = [line for text in CONTAINERS[kind](_decode(content), key) for line in LAYOUTS[layout](text)]
    return [" ".join(paragraph.split()) for paragraph in paragraphs if paragraph.strip()]


def _decode(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _file(text: str, key: str) -> Iterator[str]:
    yield text


def _json(text: str, key: str) -> Iterator[str]:
    """All strings under a key, at any depth."""
    try:
        pending: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if isinstance(value.get(key), str):
                yield value[key]
            pending.extend(reversed(value.values()))
        elif isinstance(value, list):
            pending.extend(reversed(value))


def _xml(text: str, key: str) -> Iterator[str]:
    """The text of all elements with a tag, without that of notes and figures in them."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise ValueError("an XML file may not define entities")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"no XML: {error}") from error
    for element in root.iter():
        if isinstance(element.tag, str) and element.tag.rpartition("}")[2] == key:
            for inner in element.iter():
                if isinstance(inner.tag, str) and inner.tag.rpartition("}")[2] in ("note", "figure", "table", "list"):
                    tail = inner.tail
                    inner.clear()
                    inner.tail = tail
            yield "".join(element.itertext())


def _csv(text: str, key: str) -> Iterator[str]:
    """A column, its rows as lines."""
    rows = csv.DictReader(io.StringIO(text, newline=""))
    try:
        if key not in (rows.fieldnames or []):
            raise ValueError(f"no column {key}")
        yield "\n".join(" ".join((row[key] or "").split()) for row in rows)
    except csv.Error as error:
        raise ValueError(f"no CSV: {error}") from error


def _lines(text: str) -> list[str]:
    return text.split("\n")


def _blocks(text: str) -> list[str]:
    """Paragraphs between blank lines."""
    return re.split(r"\n\s*\n", text)


def _pages(text: str) -> list[str]:
    """Printed pages: a line that is indented more than most begins a paragraph; lines may be double-spaced."""
    lines = [line for line in re.split(r"[\n\f]", text) if line.strip() and not PAGE_NUMBER.match(line)]
    indentations = [len(line) - len(line.lstrip()) for line in lines]
    margin = Counter(indentations).most_common(1)[0][0] if lines else 0
    paragraphs = [""]
    for line, indentation in zip(lines, indentations, strict=True):
        if abs(indentation - margin) > 2:
            paragraphs.append(line)
        elif paragraphs[-1].endswith("-") and line.lstrip()[:1].islower():
            paragraphs[-1] = paragraphs[-1][:-1] + line.lstrip()
        else:
            paragraphs[-1] += " " + line
    return paragraphs


def _html(text: str) -> list[str]:
    return [html.unescape(TAGS.sub("", part)) for part in BREAKS.split(NOT_TEXT.sub(" ", text))]


def _markdown(text: str) -> list[str]:
    text = CODE.sub("", FRONT_MATTER.sub("", text, count=1))
    text = LINKS.sub(r"\1", IMAGES.sub("", NOTES.sub("", text)))
    text = BREAKS.sub("\n\n", NOT_TEXT.sub(" ", text))
    lines = []
    for line in text.split("\n"):
        if MARKDOWN_NOISE.match(line):
            line = ""
        elif start := MARKDOWN_START.match(line):
            line = "\n" + line[start.end() :] + ("\n" if "#" in start[0] else "")
        elif line.startswith("    ") and not (lines and lines[-1].strip()):  # code
            line = ""
        lines.append(line)
    return [html.unescape(MARKS.sub("", TAGS.sub("", block))) for block in _blocks("\n".join(lines))]


CONTAINERS: dict[str, Callable[[str, str], Iterator[str]]] = {"file": _file, "json": _json, "xml": _xml, "csv": _csv}
LAYOUTS: dict[str, Callable[[str], list[str]]] = {
    "lines": _lines, "blocks": _blocks, "pages": _pages, "html": _html, "markdown": _markdown
}  # fmt: skip

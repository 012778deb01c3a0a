"""Hooks of MkDocs: the navigation comes from docs/index.md, and links to files outside docs/ work on the site, too.

on_config       each section of docs/index.md with links becomes a section of the navigation
on_files        adds the documents of the repository's root, such as ARCHITECTURE.md
on_page_…       points links at these pages. A link to source code becomes plain text: the site has no source code
on_post_build   writes llms.txt: every page with its first sentence
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
PROJECT = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
DECISIONS = "decisions/"
START = "Where to start"
LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^]]*\])*)\]\(([^)\s]+)\)")
PARAGRAPH = re.compile(r"\n\n([A-Z`\[*].*?)\n\n", re.DOTALL)
pages: list[tuple[str, str, str]] = []  # url, title, first paragraph


def on_config(config: Any) -> Any:
    sections = re.split(r"^## ", (ROOT / "docs" / "index.md").read_text(), flags=re.MULTILINE)[1:]
    nav: list[dict[str, Any]] = [{"Start": "index.md"}]
    for section in sections:
        title, _, text = section.partition("\n")
        links = [target for _, target in LINK.findall(text) if target.endswith(".md") and not target.startswith("..")]
        if title != START and links:
            nav.append({title: links})
    nav.append({"Decisions": sorted(f"{DECISIONS}{page.name}" for page in (ROOT / "docs" / DECISIONS).glob("*.md"))})
    nav.append({"Project": [f"project/{name}" for name in PROJECT.values()]})
    config.nav = nav
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, name in PROJECT.items():
        files.append(File.generated(config, f"project/{name}", content=(ROOT / source).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Rewrite the links of a page to what lies outside docs/, and keep its first paragraph."""
    here = page.file.src_uri
    if here.startswith("how-to/"):
        page.meta["search"] = {"boost": 3}  # a reader who searches has something to do
    source = {f"project/{name}": root for root, name in PROJECT.items()}.get(here, f"docs/{here}")

    def rewritten(match: re.Match[str]) -> str:
        text, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path:
            return match.group()
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        found = f"project/{PROJECT[meant]}" if meant in PROJECT else meant.removeprefix("docs/")
        if meant == "docs/decisions":
            found = f"{DECISIONS}{sorted((ROOT / meant).glob('*.md'))[0].name}"
        if files.get_file_from_path(found) is None:
            return text
        return f"[{text}]({posixpath.relpath(found, posixpath.dirname(here))}{'#' + anchor if anchor else ''})"

    first = PARAGRAPH.search(f"\n\n{markdown.partition(chr(10))[2]}\n\n")
    pages.append((page.file.url, page.title or here, " ".join(first.group(1).split()) if first else ""))
    return LINK.sub(rewritten, markdown)


def on_post_build(config: Any) -> None:
    lines = [f"- [{title}]({url}): {LINK.sub(chr(92) + '1', text)}" for url, title, text in pages]
    text = f"# {config.site_name}\n\n> {config.site_description}\n\n" + "\n".join(lines) + "\n"
    (Path(config.site_dir) / "llms.txt").write_text(text)

"""A hook of mkdocs: studies/results belongs to the site, under the address that it has in the tree."""

from __future__ import annotations

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
FOLDER = "studies/results"


def on_files(files, config):
    for path in sorted((ROOT / FOLDER).glob("*.*")):
        if path.suffix in (".md", ".png", ".html"):
            files.append(File(f"{FOLDER}/{path.name}", str(ROOT), config["site_dir"], config["use_directory_urls"]))
    return files


def on_page_markdown(markdown, **_):
    return markdown.replace(f"](../{FOLDER}/", f"]({FOLDER}/")

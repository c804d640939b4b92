"""A hook of mkdocs: studies/results belongs to the site, under its address in the tree; links work from disk."""

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


def on_post_page(output, **_):
    """The link home names its file: a site that is opened from disk has nobody who does that."""
    return output.replace('href="."', 'href="index.html"').replace('href="../.."', 'href="../../index.html"')

"""Token maps, segments and context scores as pages of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitreous.errors import SettingsError
from vitreous.lenses.tokens_segments import object_mask
from vitreous.views.panels import Fact, Group, Member, Overview, Page, Panel, Pictures, Section, Statement, Tile
from vitreous.views.token_text import text_picture
from vitreous.views.token_tree import tree_panel
from vitreous.views.tokens import layer_panel, segment_panel, token_panel

if TYPE_CHECKING:
    from vitreous.images.imageset import Picture
    from vitreous.lenses.tokens_finding import TokenMaps
    from vitreous.lenses.tokens_segments import Segments
    from vitreous.lenses.tokens_text import ContextScores

ROW = 4  # pictures of segments side by side
TREES = 4  # pictures whose tree is drawn
SAID = 4  # tokens of a text that are looked at
READ = "Bright is what counts for the framed token: where more attention would raise it, followed back to the input."


def spread_tokens(found: TokenMaps, count: int) -> list[int]:
    """Tokens to look at: the first prefix token if there is one, then patches spread over the picture."""
    if found.grid is None:
        raise SettingsError("texts have no patches", given=found)
    first = [found.tokens[0]] if found.tokens[0] < len(found.prefix) else []
    patches = [found.tokens[k] for k in found.patches]
    side = max(1, round(np.sqrt(max(1, count - len(first)))))
    rows, columns = (np.linspace(0, edge - 1, 2 * side + 1)[1::2].round().astype(int) for edge in found.grid)
    wanted = [found.token_at(int(y), int(x)) for y in rows for x in columns]
    return list(dict.fromkeys([*first, *(token for token in wanted if token in patches), *patches]))[:count]


def token_page(found: Sequence[TokenMaps], pictures: Sequence[Picture], tokens: Sequence[int]) -> Page:
    """Maps of a few tokens on each picture; with several blocks, the same tokens block by block."""
    groups = []
    for k, picture in enumerate(pictures):
        panels: list[Panel] = [token_panel(found[-1], picture, tokens, sample=k, tau=0.2, title="Maps and masks")]
        if len(found) > 1:
            panels.append(layer_panel(found, picture, tokens, sample=k))
        groups.append(Group(picture.id, tuple(panels)))
    section = Section("maps", "What tokens stand for", READ, tuple(groups), "Maps")
    one = found[-1]
    numbers = (Fact("tokens", str(len(one.tokens))), Fact("pictures", str(len(one))), Fact("block", str(one.block)))
    lede = f"What the tokens of {one.settings['subject']} are made of, after block {one.block}."
    covered = [f"{object_mask(each.maps).mean():.0%} after block {each.block}" for each in found]
    said = f"Cut at 0.2, a token's map covers {', '.join(covered)} of a picture on average."
    return Page("Tokens", _overview(one, lede, numbers, "maps", said), (section,))


def text_page(found: Sequence[TokenMaps], words: Sequence[Sequence[str]]) -> Page:
    """Texts coloured by how much each word counts for a few of their tokens, the last among them, block by block."""
    one = found[-1]
    groups = []
    for k, said in enumerate(words):
        there = [place for place, token in enumerate(one.tokens) if token < len(said)]
        steps = np.unique(np.linspace(0, len(there) - 1, SAID + 1).round().astype(int)) if there else ()
        panels = tuple(_coloured(each, said, k, [there[i] for i in steps][-SAID:]) for each in found)
        groups.append(Group(one.ids[k], panels))
    sentence = "The redder a word, the more it counts for the token that is named under the text."
    section = Section("maps", "What tokens stand for", sentence, tuple(groups), "Maps")
    numbers = (Fact("tokens", str(len(one.tokens))), Fact("texts", str(len(one))), Fact("block", str(one.block)))
    lede = f"What the tokens of {one.settings['subject']} are made of, after block {one.block}."
    return Page("Tokens", _overview(one, lede, numbers, "maps", sentence), (section,))


def _coloured(found: TokenMaps, words: Sequence[str], sample: int, places: Sequence[int]) -> Pictures:
    tiles = []
    for place in places:
        token = found.tokens[place]
        alt = f"words coloured by how much they count for token {token}, {words[token].strip()}"
        picture = text_picture(words, found.maps[sample, place, : len(words)])
        tiles.append(Tile(picture, alt, f"token {token}: {words[token].strip()}"))
    if not tiles:
        tiles = [Tile(text_picture(words, np.zeros(len(words))), "the words", "too short for the tokens asked for")]
    return Pictures(f"after block {found.block}", tuple(tiles), 1)


def segment_page(segments: Segments, pictures: Sequence[Picture]) -> Page:
    """Pictures with their segments, a few in a row; then the trees of the first ones."""
    labels = segments.labels()
    panels = [
        segment_panel(
            [np.asarray(picture.image) for picture in pictures[k : k + ROW]],
            {"segments": labels[k : k + len(pictures[k : k + ROW])]},
            names=[picture.id for picture in pictures[k : k + ROW]],
        )
        for k in range(0, len(pictures), ROW)
    ]
    sentence = "Tokens whose maps are alike make a segment; a pixel goes to the segment whose maps are largest there."
    section = Section("segments", "Segments without training", sentence, (Group("", tuple(panels)),), "Segments")
    trees = [Group(p.id, (tree_panel(p, segments, sample=k),)) for k, p in enumerate(pictures[:TREES])]
    said = "The same tokens, cut into more and more parts. The tree is kept: other numbers of segments cost nothing."
    tree = Section("trees", "From the whole to its parts", said, tuple(trees), "Trees")
    counts = segments.counts
    numbers = (Fact("pictures", str(len(segments))), Fact("segments", f"{counts.min()} to {counts.max()}"))
    one = segments.maps
    lede = f"Pictures cut up by the tokens of {one.settings['subject']}, which was never trained for it."
    largest = np.mean([np.bincount(grid.ravel()).max() / grid.size for grid in segments.grid])
    found = f"The largest segment of a picture covers {largest:.0%} of it on average."
    return Page("Segments", _overview(one, lede, numbers, "segments", found), (section, tree))


def context_page(found: ContextScores) -> Page:
    """The context, coloured by how much each word counts for the summary."""
    picture = text_picture(found.words, found.scores)
    summary = "".join(found.summary)
    panel = Pictures("The context", (Tile(picture, "words coloured by their scores", summary),), 1)
    sentence = "The redder a word, the more it counts for the words of the summary, on average."
    section = Section("context", "What the summary rests on", sentence, (Group("", (panel,)),), "Context")
    numbers = (Fact("context", f"{len(found)} tokens"), Fact("summary", f"{len(found.summary)} tokens"))
    model = Member(str(found.settings["subject"]), f"block {found.block}", 0)
    best = ", ".join(found.words[k].strip() for k in np.argsort(-found.scores)[:5])
    said = Statement(f"Most counts: {best}.", "context")
    notes = tuple(Statement(note, "context") for note in found.notes)
    overview = Overview("Which words a summary rests on.", summary, (model,), numbers, (said, *notes), kind="context")
    return Page("Context", overview, (section,))


def _overview(found: TokenMaps, lede: str, numbers: tuple[Fact, ...], section: str, first: str) -> Overview:
    settings = found.settings
    how = f"{settings['target']}, {settings['order']} order" if "target" in settings else settings["method"]
    about = f"{how}, own entry: {settings['own']}"
    said = tuple(Statement(text, section) for text in (first, *found.notes))
    model = Member(str(settings["subject"]), about, 0)
    counted = f"{len(found)} {'texts' if found.grid is None else 'pictures'}"
    return Overview(lede, counted, (model,), numbers, said, kind="tokens")

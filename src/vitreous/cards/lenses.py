"""What each lens says of one unit, with a sentence in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitreous.cards.plain import number, plain, shade
from vitreous.cards.sheet import Sheet, unit_id

if TYPE_CHECKING:
    from vitreous.lenses.align_cut import Spectral

MATES = 24  # of a cluster that are listed
DUPLICATES = 12  # of a sub-unit


# -- structure


def structure_part(sheet: Sheet, unit: int) -> dict[str, Any] | None:
    """A unit of mlp.out writes into the channel of its number in the stream of its block: there its mates are."""
    finding, layer = sheet.structure, sheet.layer
    if finding is None or layer is None or unit >= finding.labels.shape[2]:
        return None
    found = sheet.cluster(unit)
    if found is None:
        return _alone(sheet, unit, layer)
    cluster, _ = found
    members = finding.clusters[cluster]
    span = [_block(finding.layers[int(edge)]) for edge in finding.spans[cluster]]
    listed = [m for m in members.tolist() if (m[0], m[2]) != (layer, unit)]
    distance = finding.to_anchor
    listed.sort(key=lambda m: (float(distance[tuple(m)]), m))
    anchor = _place(sheet, members[0].tolist(), None)
    others = f"{len(members) - 1} other {'place' if len(members) == 2 else 'places'}"
    sentence = (
        f"What it writes puts the pictures in the same order as {others} of the stream, from block {span[0]} to block "
        f"{span[1]}; the first is block {anchor['block']}, channel {anchor['channel']}."
    )
    gap = bool(finding.inefficient[cluster])
    return {
        "cluster": cluster,
        "size": len(members),
        "anchor": anchor,
        "mates": [_place(sheet, m, plain(distance[tuple(m)])) for m in listed[:MATES]],
        "inefficient": gap,
        "span": span,
        "sentence": sentence + (" The job vanishes in a block in between and comes back." if gap else ""),
    }


def _alone(sheet: Sheet, unit: int, layer: int) -> dict[str, Any]:
    finding = sheet.structure
    assert finding is not None
    mates = []
    if sheet.near is not None and sheet.near[0].shape[:3] == finding.labels.shape:
        units, distances = (part[layer, 0, unit] for part in sheet.near)
        for flat, away in zip(units.tolist(), distances.tolist(), strict=True):
            if 0 <= flat < finding.labels.size:
                place = [int(k) for k in np.unravel_index(flat, finding.labels.shape)]
                mates.append(_place(sheet, place, plain(away)))
    sentence = "No other place of the stream puts the pictures in the same order."
    if finding.dead[layer, 0, unit]:
        sentence = "Its channel of the stream is the same for every picture."
    elif mates:
        bins = finding.settings["bins"]
        near = mates[0]
        sentence += (
            f" The nearest is block {near['block']}, channel {near['channel']}, {number(near['distance'])} of {bins} "
            "ranks away on average."
        )
    return {
        "cluster": None,
        "size": 0,
        "anchor": None,
        "mates": mates,
        "inefficient": False,
        "span": None,
        "sentence": sentence,
    }


def _place(sheet: Sheet, place: list[int], distance: float | None) -> dict[str, Any]:
    finding = sheet.structure
    assert finding is not None
    layer, token, channel = place
    block = _block(finding.layers[layer])
    there = channel in sheet.run.settings["units"].get(f"{sheet.model}/{block}", ())
    return {
        "layer": finding.layers[layer],
        "block": block,
        "token": int(finding.tokens[token]),
        "channel": channel,
        "distance": distance,
        "id": unit_id(sheet.model, block, channel) if there else None,
    }


def _block(layer: str) -> int:
    return int(layer.split(".")[1])


# -- disentangle


def disentangle_part(sheet: Sheet, unit: int) -> dict[str, Any] | None:
    finding = sheet.finding
    if finding is None:
        return None
    at = sheet.places[unit]
    mine = finding.subunits(unit)
    shares = finding.shares(unit)
    subunits = [_subunit(sheet, int(k), float((share == 1).mean())) for k, share in zip(mine, shares, strict=True)]
    k, rho, noise = int(finding.counts[at]), plain(finding.rho[at]), plain(finding.noise[at])
    if len(mine) < 2:
        sentence = "Its strongest patches do not fall into groups: it stays whole."
    else:
        named = list(dict.fromkeys(one["label"]["text"] for one in subunits if one["label"]))
        words = f": {', '.join(named)}" if named else ""
        sentence = (
            f"Its strongest patches fall into {len(mine)} groups that different inputs drive{words}. "
            f"{noise:.0%} of the patches belong to none."
        )
    return {"k": k, "rho": rho, "noise": noise, "sentence": sentence, "subunits": subunits}


def _subunit(sheet: Sheet, number_: int, own: float) -> dict[str, Any]:
    finding, profile = sheet.finding, sheet.profile
    assert finding is not None
    tiles = []
    if profile is not None:
        for j in np.flatnonzero(profile.subunit_pictures[number_] >= 0):
            tiles.append(
                sheet.tile(
                    profile.subunit_pictures[number_, j],
                    profile.subunit_patches[number_, j],
                    profile.subunit_values[number_, j],
                    profile.subunit_heat[number_, j],
                )
            )
    return {
        "id": sheet.subunit_id(number_),
        "size": int(finding.sizes[number_]),
        "inputs": plain(own),
        "dead": bool(finding.dead[number_]),
        "label": sheet.subunit_label(number_),
        "ms": sheet.subunit_evidence("subunit_ms", number_),
        "control": sheet.subunit_evidence("subunit_control", number_),
        "tiles": tiles,
        "duplicates": sheet.duplicates.get(number_, [])[:DUPLICATES],
    }


# -- align


def align_part(sheet: Sheet, unit: int) -> dict[str, Any] | None:
    """Where its strongest patches lie in the space of all models, and how they move from layer to layer."""
    spectral, profile = sheet.spectral, sheet.profile
    if spectral is None or profile is None:
        return None
    close = {picture: k for k, picture in enumerate(sheet.run.pictures.close)}
    at = sheet.places[unit]
    pairs = zip(profile.close_pictures[at].tolist(), profile.close_patches[at].tolist(), strict=True)
    seen = [(close[picture], patch) for picture, patch in pairs if picture in close and patch >= 0]
    if not seen:
        return None
    pictures, patches = (np.array(part) for part in zip(*seen, strict=True))
    paths = _paths(sheet, spectral, pictures, patches)
    own = f"blocks.{sheet.block}.attn.out"
    points = []
    if (sheet.model, own) in spectral.blocks:
        flat = spectral.of(sheet.model, own, sheet.run.places)
        shades = spectral.of(sheet.model, own, sheet.run.colours)
        for picture, patch in zip(pictures.tolist(), patches.tolist(), strict=True):
            if patch < flat.shape[1]:
                x, y = flat[picture, patch]
                points.append(
                    {
                        "picture": sheet.run.pictures.close[picture],
                        "token": patch + len(sheet.entry.prefix),
                        "x": plain(x),
                        "y": plain(y),
                        "colour": shade(shades[picture, patch]),
                    }
                )
    return {"sentence": _moves(sheet, paths, len(seen)), "paths": paths, "points": points}


def _paths(sheet: Sheet, spectral: Spectral, pictures: np.ndarray, patches: np.ndarray) -> list[dict[str, Any]]:
    """The mean place of these patches at each layer of each model; on another grid those at the same spot."""
    grid = sheet.entry.grid
    found: dict[str, dict[str, Any]] = {}
    for model, layer in spectral.blocks:
        other = sheet.run.model(model).grid
        rows, columns = np.divmod(patches, grid.columns)
        there = (rows * other.rows // grid.rows) * other.columns + columns * other.columns // grid.columns
        place = spectral.of(model, layer, sheet.run.places)[pictures, there].mean(0)
        colour = spectral.of(model, layer, sheet.run.colours)[pictures, there].mean(0).round()
        path = found.setdefault(model, {"model": model, "layers": [], "x": [], "y": [], "colours": []})
        path["layers"].append(layer)
        path["x"].append(plain(place[0]))
        path["y"].append(plain(place[1]))
        path["colours"].append(shade(colour))
    return list(found.values())


def _moves(sheet: Sheet, paths: list[dict[str, Any]], count: int) -> str:
    """How far the mean place moves over a model's layers, next to how wide the map is."""
    wide = float(np.ptp(sheet.run.places, axis=0).max()) or 1.0
    mine = next(path for path in paths if path["model"] == sheet.model)
    steps = np.hypot(np.diff(mine["x"]), np.diff(mine["y"]))
    if not len(steps):
        return (
            f"Its {count} strongest patches among the pictures that were looked at closely, on the map of all models."
        )
    largest = int(steps.argmax())
    return (
        f"Its {count} strongest patches move by {steps.sum() / wide:.0%} of the map's width over the blocks of "
        f"{sheet.model}, most of all from {_short(mine['layers'][largest])} to {_short(mine['layers'][largest + 1])}."
    )


def _short(layer: str) -> str:
    return f"block {_block(layer)}"


# -- tokens


def token_part(sheet: Sheet, unit: int) -> dict[str, Any] | None:
    """The pixels behind the tokens at which it is strongest."""
    maps, profile = sheet.maps, sheet.profile
    if maps is None or profile is None or maps.grid is None:
        return None
    inside = {name: k for k, name in enumerate(maps.ids)}
    names = sheet.run.pictures.names
    at, tiles, spread = sheet.places[unit], [], []
    places = zip(profile.close_pictures[at].tolist(), profile.close_patches[at].tolist(), strict=True)
    for j, (picture, patch) in enumerate(places):
        if picture < 0 or patch < 0 or names[picture] not in inside:
            continue
        token = patch + len(maps.prefix)
        if token not in maps.tokens:
            continue
        heat = maps.maps[inside[names[picture]], maps.tokens.index(token)].ravel()
        low, high = float(heat.min()), float(heat.max())
        scaled = (heat - low) / (high - low) if high > low else np.zeros_like(heat)
        spread.append(float((scaled > 0.5).mean()))
        tiles.append(sheet.tile(picture, patch, profile.close_values[at, j], np.round(255 * scaled).astype(np.uint8)))
    if not tiles:
        return None
    sentence = (
        f"What the framed tokens are made of after block {sheet.block}: on average {np.mean(spread):.0%} of the "
        "picture counts at least half as much as the patch that counts most."
    )
    return {"sentence": sentence, "block": sheet.block, "tiles": tiles}

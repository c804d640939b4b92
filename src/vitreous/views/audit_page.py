"""An audit as a page for those who use the model: the answer first, then what it rests on, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vitreous.auditing.finding import AuditFinding, AuditRow
from vitreous.auditing.overall import Overall
from vitreous.auditing.ranking import BETWEEN, OUTSIDE, WHOLE
from vitreous.auditing.sweep import AuditSweep
from vitreous.auditing.switch import BeforeAfter, SwitchOff
from vitreous.views.panels import (
    Card,
    Cell,
    Fact,
    Group,
    Member,
    Overview,
    Page,
    Section,
    Statement,
    Table,
    Text,
)

LISTED = 20  # rows of the ranked list
NAMED = 4  # layers that are named one by one
PATCH = "patch.safetensors"

MEANS = {
    OUTSIDE: (
        "The object was painted over in every picture, and the model looked again. What a part of the model still adds "
        "to the right class then comes from the surroundings: it cannot come from the object."
    ),
    BETWEEN: (
        "Pictures of one class were compared group by group. A part that adds much more in one group than in the "
        "others answers to what tells the groups apart, not to what makes the class."
    ),
    WHOLE: (
        "No masks and no groups were given. The list then says only how much a class rests on a part. A shortcut and "
        "a good reason look alike: a person has to look at the pictures, or masks have to be given."
    ),
}
ALTHOUGH = {
    OUTSIDE: "although the object is painted over",
    BETWEEN: "in one group of pictures more than in the others of the same class",
    WHOLE: "more than for other classes; without masks, whether rightly so cannot be told",
}

SHOULD = {
    "alarms with shuffled labels": "0: with labels dealt out by lot there is nothing to find",
    "random sub-units, largest": "below the largest of the list, if the split finds concepts and not any direction",
    "undivided units, largest": "below or like the largest of the list: a unit may mix a shortcut with others",
}


@dataclass(frozen=True, eq=False)
class AuditLook:
    """`cards` of the first parts; `patch` switches off all alarms or what was chosen, None where there is nothing."""

    sweep: AuditSweep
    cards: tuple[Card, ...]
    patch: SwitchOff | None
    model: str
    data: str

    @property
    def first(self) -> AuditFinding:
        """What all layers have in common, of the first of them."""
        return self.sweep.findings[0]

    @property
    def several(self) -> bool:
        return len(self.sweep.findings) > 1

    def name(self, site: str, row: AuditRow) -> str:
        return called(site if self.several else None, row)


def called(site: str | None, row: AuditRow) -> str:
    """A part, with its layer where there are several."""
    return row.name if site is None else f"{row.name} of {site}"


def audit_page(look: AuditLook, more: tuple[Statement, ...] = (), sections: tuple[Section, ...] = ()) -> Page:
    """`more` statements and `sections` follow on what was found of parts."""
    sweep, first = look.sweep, look.first
    numbers = [
        Fact("suspicious parts", f"{len(sweep.alarms)}", f"of {len(sweep.rows)} that were tested"),
        Fact("right decisions", f"{first.accuracy:.1%}", f"of {len(first.labels):,} pictures, as the model is"),
    ]
    if look.patch is not None:
        after = look.patch.effect["all pictures"][1]
        numbers.append(Fact("right when switched off", f"{after:.1%}", f"{len(look.patch)} parts put at their level"))
    lede = f"Is {look.model} right for the wrong reason? {answer(sweep)}"
    said = ", ".join(f"{name} ({int((first.labels == k).sum())})" for k, name in enumerate(first.classes[:8]))
    others = f" and {len(first.classes) - 8} more classes" if len(first.classes) > 8 else ""
    sites = [finding.site for finding in sweep.findings]
    where = ", ".join(sites) if len(sites) <= NAMED else f"{len(sites)} layers, from {sites[0]} to {sites[-1]}"
    overview = Overview(
        lede,
        f"{look.data}: {said}{others}.",
        (Member(look.model, where, 0),),
        tuple(numbers),
        (*_statements(look), *more),
        kind="audit",
    )
    return Page(f"{look.model}: does it take a shortcut?", overview, tuple(_sections(look, sections)))


def answer(sweep: AuditSweep) -> str:
    """The whole audit in one sentence."""
    first = sweep.findings[0]
    return answer_for([row.target for _, row in sweep.alarms], len(sweep.rows), first.classes, first.basis)


def answer_for(alarms: Sequence[int], tested: int, classes: Sequence[str], basis: str) -> str:
    """`alarms` has the class of each."""
    if not alarms:
        return f"Nothing was found: of {tested} parts none raised an alarm." + (
            "" if basis != WHOLE else " Without masks or groups this says little."
        )
    counts = Counter(classes[target] for target in alarms)
    parts = [f"{n} {'concept speaks' if n == 1 else 'concepts speak'} for '{name}'" for name, n in counts.most_common()]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + f" and {parts[-1]}"
    return f"{listed} {ALTHOUGH[basis]}."


def of_whole(whole: Overall | None, classes: Sequence[str], parts: int) -> str:
    """What the model's own test says, in words; nothing without masks. `parts` is how many raised an alarm."""
    if whole is None:
        return ""
    if not whole.alarm:
        return f"The model as a whole does not tell the classes with the object painted over (chance {whole.p:.4f})."
    said = (
        f"With the object painted over, the model as a whole still gives '{classes[whole.target]}' "
        f"{whole.suspicion:.2f} log-odds more in its own pictures than in others (chance {whole.p:.4f})."
    )
    if parts:
        return said
    return f"{said} No part stands for that by itself: it is spread over many. Look at places: vt.audit_places."


def _statements(look: AuditLook) -> Iterator[Statement]:
    sweep, classes = look.sweep, look.first.classes
    if whole := of_whole(sweep.overall, classes, len(sweep.alarms)):
        yield Statement(whole, "controls")
    if not sweep.alarms:
        yield Statement(
            "No part speaks for a class where it should not, beyond what chance gives. This does not prove that there "
            "is no shortcut: one that this layer, these pictures or these masks do not show stays hidden.",
            "controls",
        )
        return
    site, row = sweep.alarms[0]
    yield Statement(f"Most suspicious: part {look.name(site, row)}, which {speaks(look.first, row)}.", "parts")
    if look.several:
        counts = Counter(site for site, _ in sweep.alarms)
        said = ", ".join(f"{counts[one.site]} of {one.site}" for one in sweep.findings if counts[one.site])
        yield Statement(f"Alarms by layer, in the order of the model: {said}.", "parts")
    if look.patch is not None:
        table = look.patch.effect
        before, after = table["all pictures"]
        yield Statement(
            f"Switched off, {table.changed} of {table.pictures} decisions change: {before:.1%} were right, "
            f"{after:.1%} are then.",
            "off",
        )
    yield from _of_controls(look)


def _of_controls(look: AuditLook) -> Iterator[Statement]:
    """Whether the list is more than luck, and more than simpler ways to cut, where anything was cut."""
    controls = [finding.controls for finding in look.sweep.findings]
    dealt = sum(found.get("alarms with shuffled labels", 0) for found in controls)
    yield Statement(
        f"With labels dealt out at random there are {dealt:.0f} alarms"
        + (": the alarms are not made by the method itself." if dealt == 0 else "; there should be none."),
        "controls",
    )
    largest = max(row.suspicion for _, row in look.sweep.alarms)
    simpler = [name for found in controls for name, v in found.items() if name.endswith("largest") and v >= largest]
    if simpler and any(row.part is not None for _, row in look.sweep.rows):
        names = " and ".join(dict.fromkeys(name.split(",")[0] for name in simpler)).capitalize()
        yield Statement(
            f"{names} give as much or more: that something off the object speaks is "
            "shown, that these parts are the right way to cut it out is not."
            if look.first.basis == OUTSIDE
            else f"{names} give as much or more: these parts are no better a way to cut.",
            "controls",
        )


def _sections(look: AuditLook, more: tuple[Section, ...]) -> Iterator[Section]:
    yield _parts_section(look)
    if look.patch is not None:
        yield _off_section(look)
    yield from more
    yield _controls_section(look)
    words = Text("What the list rests on", (MEANS[look.first.basis], *limits_of(look.sweep)))
    yield Section("limits", "What this can and cannot say", "", (Group("", (words,)),), "Limits")


def _parts_section(look: AuditLook) -> Section:
    sweep, classes = look.sweep, look.first.classes
    columns: tuple[str, ...] = (
        "part",
        "speaks for",
        "suspicion",
        "chance, corrected",
        "off the object",
        "agreement",
        "alarm",
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            row.name if row.label is None else f"{row.name}: {row.label}",
            classes[row.target],
            f"{row.suspicion:+.3f}",
            f"{row.corrected:.4f}",
            share(row.outside),
            share(row.agreement),
            "alarm" if row.alarm else "",
        )
        for _, row in sweep.rows[:LISTED]
    )
    if look.several:
        columns = ("layer", *columns)
        rows = tuple((site, *row) for (site, _), row in zip(sweep.rows, rows, strict=False))
    table = Table(f"The first {len(rows)} of {len(sweep.rows)}", columns, rows, "Suspicion in log-odds of the class.")
    tables = (table, _by_class(look))
    told = "The most suspicious parts" if sweep.alarms else "No alarm; the first of the list, to look at all the same"
    where = f"one of {len(sweep.findings)} layers" if look.several else look.first.site
    sentence = (
        f"Every part is a direction inside {where}: a concept that the model forms. Bright places are where the "
        "part answers in the picture."
    )
    return Section("parts", told, sentence, (Group("", look.cards), Group("The list", tables)), "Suspicious parts")


def _by_class(look: AuditLook) -> Table:
    """What the first parts add to each class and tell of it, and of each group."""
    first = look.first.every
    some, kinds = first.classes[:NAMED], first.groups[:NAMED]
    columns = ("part", *(f"{what} '{name}'" for name in some for what in ("adds to", "tells")))
    rows: list[tuple[Cell, ...]] = []
    for site, row in look.sweep.rows[:LISTED]:
        every = look.sweep[site].every
        cells: list[Cell] = [look.name(site, row)]
        for c in range(len(some)):
            cells += [f"{every.contributions[row.id, c]:+.3f}", f"{every.selectivity[row.id, c]:.2f}"]
        rows.append((*cells, *(f"{every.by_group[row.id, g]:.2f}" for g in range(len(kinds)))))
    exact = [finding.every.exact for finding in look.sweep.findings]
    how = "exactly" if all(exact) else "to first order; what really happens without a part is 'taken out' above"
    caption = f"Adds: to the class's logit, in pictures of the class, {how}. Tells: AUC, 0.5 is not at all."
    if left := len(first.classes) - len(some) + len(first.groups) - len(kinds):
        caption += f" {left} more classes and groups: finding.every."
    return Table("Class by class", (*columns, *(f"tells group '{name}'" for name in kinds)), tuple(rows), caption)


def _off_section(look: AuditLook) -> Section:
    patch = look.patch
    assert patch is not None
    code = (
        "import vitreous as vt\n\n"
        f'patch = vt.SwitchOff.load("{PATCH}")\n'
        "with patch.on(subject):      # or patch.apply(subject), until patch.remove(subject)\n"
        "    logits = subject(pictures)"
    )
    words = Text(
        "How to switch them off",
        (
            f"{PATCH}, beside this page, holds the {len(patch)} parts: "
            f"{_named(look, patch)}. Each is put at its mean; nothing else "
            "in the model changes, and no weight is overwritten.",
            "If the model was right because of the shortcut, it will be right less often on pictures like these, and "
            "more often where the shortcut misleads. Try pictures where object and surroundings do not agree.",
        ),
        code,
    )
    return Section(
        "off",
        "What if they are switched off?",
        "The same pictures, with the suspicious parts silenced.",
        (Group("", (effect_table(patch.effect), words), columns=2),),
        "Switched off",
    )


def effect_table(table: BeforeAfter) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (what, n, f"{before:.1%}", f"{after:.1%}", f"{100 * (after - before):+.1f}")
        for what, n, before, after in table.rows
    )
    caption = (
        f"{table.changed} of {table.pictures} decisions changed: {table.mended} are right now, {table.broken} wrong. "
        f"{sentence(table.price())}"
    )
    if any(what.endswith((", with", ", without")) for what, *_ in table.rows):
        caption += " 'with' and 'without' are halves of a class by how much the suspicious parts add."
    return Table(
        "Right decisions before and after", ("pictures", "how many", "before", "after", "points"), rows, caption
    )


def _named(look: AuditLook, patch: SwitchOff, most: int = 12) -> str:
    """The first parts that a patch switches off, layer by layer."""
    if not look.several:
        return ", ".join(patch.names[:most]) + (" ..." if len(patch) > most else "")
    each = max(1, most // len(patch.layers))
    said = [
        f"{', '.join(one.names[:each])}{' ...' if len(one.names) > each else ''} of {one.site}" for one in patch.layers
    ]
    return "; ".join(said)


def _controls_section(look: AuditLook) -> Section:
    rows: list[tuple[Cell, ...]] = []
    for finding in look.sweep.findings:
        where = f", {finding.site}" if look.several else ""
        largest = max((row.suspicion for row in finding.rows), default=float("nan"))
        rows.append((f"largest suspicion of the list{where}", f"{largest:.3f}", ""))
        for name, value in finding.controls.items():
            measured = "not measured" if np.isnan(value) else f"{value:.3f}"
            shown = f"{value:.0f}" if name.startswith("alarms") else measured
            rows.append((f"{name}{where}", shown, SHOULD.get(name, "")))
    table = Table("Controls", ("what", "found", "what it should be"), tuple(rows))
    sentence = "The same measurement where nothing should be found, or where something simpler is tried."
    return Section("controls", "Can the list be trusted?", sentence, (Group("", (table,)),), "Controls")


def limits_of(sweep: AuditSweep) -> Iterator[str]:
    """What a reader has to know before believing it; of several layers also how they share alpha."""
    alphas = [float(finding.settings.get("alpha", 0.05)) for finding in sweep.findings]
    if len(alphas) > 1:
        yield f"{len(alphas)} layers were audited and share the alpha of {sum(alphas):g} evenly."
    yield from limits(sweep.findings[0])


def limits(finding: AuditFinding) -> Iterator[str]:
    """What a reader has to know before believing it."""
    settings = finding.settings
    yield (
        f"{len(finding)} parts were tested together. Each chance was corrected for all tests "
        f"({settings.get('correction', 'fdr_bh')}); an alarm is at most {settings.get('alpha', 0.05):g}."
    )
    yield (
        "The pictures must not be those that the model was trained on: what it knows by heart looks like a shortcut, "
        "or hides one."
    )
    if finding.basis != OUTSIDE:
        yield "Without masks, a part that sees the object and one that sees what stands beside it look alike."
    else:
        yield (
            "A mask that leaves a rim of the object, or its shadow, leaves some of the object in the picture. And not "
            "all surroundings are wrong: a person decides whether water may speak for a boat."
        )
    yield "An alarm is a reason to look, not a verdict: look at the pictures of the part."


def speaks(finding: AuditFinding, row: AuditRow) -> str:
    """What a part does, as a sentence without its subject."""
    name = finding.classes[row.target]
    times = f"{np.exp(row.suspicion):.2f} times the odds"
    if finding.basis == BETWEEN:
        return f"adds {row.suspicion:.2f} to the log-odds in one group of a class more than in the others ({times})"
    what = "with the object painted over, still adds" if finding.basis == OUTSIDE else "adds"
    return f"{what} {row.suspicion:.2f} to the log-odds of '{name}' in its own pictures more than in others ({times})"


def sentence(said: str) -> str:
    return f"{said[0].upper()}{said[1:]}."


def share(value: float) -> str:
    return "not known" if np.isnan(value) else f"{value:.0%}"

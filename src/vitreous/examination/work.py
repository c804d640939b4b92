"""`vt.examine`: the lenses one after the other, each part in its own file. Killed and called again, it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vitreous.examination.files as files
from vitreous.errors import SettingsError, VitreousError
from vitreous.examination.opened import Examination, open_run
from vitreous.examination.outlook import outlook, spoken
from vitreous.examination.parts import PARTS, Bench
from vitreous.examination.plan import Plan, Towers, make_plan
from vitreous.mirrors import kept_at
from vitreous.progress import voice
from vitreous.provenance import json_bytes, replace_file, start_run

if TYPE_CHECKING:
    from vitreous.images import ImageSet
    from vitreous.models.subject import Subject
    from vitreous.responses import Responses


@kept_at("out")
def examine(
    subjects: Sequence[Subject | str] | Subject | str,
    images: ImageSet,
    out: str | Path,
    *,
    blocks: Sequence[int] | None = None,
    units: int | Sequence[int] | None = None,
    close: int = 128,
    eigenvectors: int = 20,
    towers: Towers | None = None,
    responses: Responses | None = None,
    weights: Sequence[str | Path | None] | None = None,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = True,
) -> Examination:
    """Looks at models through all four lenses, with evidence, and keeps everything in the folder `out`.

    Units are those of `mlp.out` of an early, a middle and the last block, or of `blocks`; all of them, those of these
    numbers, or so many drawn by the seed. `close` pictures, spread over the set, are looked at patch by patch: token
    maps and the universal space. `towers` name units by words; the bundled models have theirs. Models of different
    width need `responses` (as `vt.align` does) to lie in one space. `weights` and `settings` are for models given by
    name, as `vt.load` takes them.

    Killed at any moment and called again, it goes on and ends with the same bytes. A part that cannot be made (a model
    without attention has no token maps) is left out and the reason kept; the others are not affected.

    >>> run = vt.examine(["bundled:scenes-text", "bundled:scenes-mae"], vt.scenes(512, size=64), "run")
    >>> run.disentanglement("scenes-text", 7), run.evidence("scenes-text", 7)["ms"][:3]
    """
    given: Any = [subjects] if not isinstance(subjects, list | tuple) else subjects
    plan = make_plan(
        given,
        images,
        out,
        weights=weights,
        settings=settings,
        blocks=blocks,
        units=units,
        close=close,
        eigenvectors=eigenvectors,
        towers=towers,
        responses=responses,
        seed=seed,
        device=device,
        progress=progress,
    )
    return carry_out(plan)


def carry_out(plan: Plan) -> Examination:
    """Makes every part that is not there yet, and opens the run."""
    record = plan.record()
    plan.out.mkdir(parents=True, exist_ok=True)
    _refuse_other(plan.out / files.PLAN, json_bytes(record))
    replace_file(plan.out / files.PLAN, json_bytes(record))
    inputs = {one["name"]: one["fingerprint"] for one in record["models"]}
    inputs |= {plan.images.name: plan.images.fingerprint}
    said = {key: value for key, value in record["settings"].items() if key not in ("units", "words", "seed")}
    said |= {"models": [one["source"] for one in record["models"]], "pictures": len(plan.images)}
    say = voice(plan.progress)
    where = str(plan.models[0].subject.device)
    if plan.progress and not (plan.out / files.ABOUT).exists():
        say(f"{_amount(plan)}: {spoken(outlook(plan))}")
        say("  less with fewer units or fewer close pictures; the first run on a machine compiles kernels besides")
    with start_run(plan.out, "examine", said, seeds={"seed": plan.seed}, inputs=inputs, device=where) as run:
        bench = Bench(plan)
        absent: dict[str, str] = {}
        for number, (title, part) in enumerate(PARTS, 1):
            say(f"{number} of {len(PARTS)}: {title}")
            part(bench, _leave_out(absent, say))
        about = record | {"images": record["images"] | {"files": bench.picture_files()}, "absent": absent}
        replace_file(plan.out / files.ABOUT, json_bytes(about))
        run.note(absent=absent)
    return open_run(plan.out)


def _amount(plan: Plan) -> str:
    """`72 units of 3 blocks on 120 pictures, 24 of them closely`."""
    units = sum(len(one.units[block]) for one in plan.models for block in one.blocks)
    blocks = sum(len(one.blocks) for one in plan.models)
    return f"{units:,} units of {blocks} blocks on {len(plan.images):,} pictures, {len(plan.close)} of them closely"


def _leave_out(absent: dict[str, str], say: Callable[[str], None]) -> Callable[[str, Callable[[], None]], None]:
    """Runs one piece of work; one that is refused is noted as absent, with the first line of why."""

    def attempt(name: str, make: Callable[[], None]) -> None:
        try:
            make()
        except VitreousError as error:
            absent[name] = str(error).splitlines()[0]
            say(f"  left out {name}: {absent[name]}")

    return attempt


def _refuse_other(path: Path, wanted: bytes) -> None:
    if not path.exists():
        return
    found = path.read_bytes()
    if found == wanted:
        return
    try:
        old, new = json.loads(found), json.loads(wanted)
        parts = [key for key in new if old.get(key) != new[key]]
    except (ValueError, AttributeError):
        parts = ["a file that cannot be read"]
    raise SettingsError(
        "the folder holds an examination of something else",
        given=f"{path.parent.name}: other {', '.join(parts)}",
        remedy="choose another folder, or ask for the same again",
    )

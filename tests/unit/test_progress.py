"""What is said while work goes on: bars for whoever watches, whole lines in a log, and nothing from short loops."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

import vitreous.progress
from vitreous.progress import say, tqdm, voice

SOURCE = Path(__file__).resolve().parents[2] / "src" / "vitreous"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [0.0]
    monkeypatch.setattr(vitreous.progress.time, "monotonic", lambda: now[0])

    def wait(seconds):
        now[0] += seconds

    return wait


def test_a_loop_in_a_log_leaves_a_line_each_minute_and_one_at_its_end(clock, capsys):
    for _ in tqdm(range(10), "units"):
        clock(45)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "units: 2 of 10 in 2 min, about 6 min left",
        "units: 4 of 10 in 3 min, about 4 min left",
        "units: 6 of 10 in 4 min, about 3 min left",
        "units: 8 of 10 in 6 min, about 2 min left",
        "units: 10 in 8 min",
    ]


def test_a_loop_that_is_left_says_how_far_it_came(clock, capsys):
    with pytest.raises(KeyError), tqdm(total=8, desc="rows", initial=3) as bar:
        clock(30)
        bar.update(2)
        bar.set_postfix(error="0.25")
        raise KeyError
    assert capsys.readouterr().err == "rows: 5 of 8 in 30 s, error 0.25\n"


def test_time_left_counts_only_what_was_done_now(clock, capsys):
    with tqdm(total=100, desc="epochs", initial=90) as bar:
        clock(60)
        bar.update(5)
        assert capsys.readouterr().err == "epochs: 95 of 100 in 60 s, about 60 s left\n"


def test_short_loops_and_loops_within_loops_leave_no_line(clock, capsys):
    for _ in tqdm(range(3), "pictures"):
        clock(0.1)
    assert capsys.readouterr().err == ""
    for _ in tqdm(range(2), "layers"):
        for _ in tqdm(range(3), "clusters"):
            clock(5)
    assert capsys.readouterr().err == "layers: 2 in 30 s\n"
    for _ in tqdm(range(1), "layers"):
        for _ in tqdm(range(3), "clusters"):
            clock(40)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" in ")[0] for line in said] == ["clusters: 2 of 3", "layers: 1"]


def test_a_loop_that_was_never_begun_silences_nobody(clock, capsys):
    tqdm(range(3), "never")
    broken = iter(tqdm(range(3), "broken"))
    next(broken)
    broken.close()
    for _ in tqdm(range(1), "pictures"):
        clock(5)
    assert capsys.readouterr().err == "pictures: 1 in 5 s\n"


def test_whoever_watches_sees_a_bar(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    for _ in tqdm(range(2), "pictures"):
        say("a word in between")
    assert "\rpictures: 100%" in seen.getvalue()
    assert "a word in between\n" in seen.getvalue()


def test_a_quiet_loop_and_a_quiet_voice_say_nothing(clock, capsys):
    for _ in tqdm(range(2), "pictures", disable=True):
        clock(100)
    voice(False)("a stage")
    assert capsys.readouterr().err == ""
    voice(True)("a stage")
    assert capsys.readouterr().err == "a stage\n"


def test_there_is_one_mechanism():
    """Whoever asks by himself where the error stream leads would be silent where others speak."""
    apart = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if any(word in path.read_text() for word in ("from tqdm", "import tqdm ", "isatty", "rich.progress"))
    ]
    assert apart == ["progress.py"]

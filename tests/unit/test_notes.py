"""Names and comments survive: kills, half lines, foreign lines, several writers, and a change of mind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vitreous.errors import SettingsError, StoreError
from vitreous.notes import FILE, LONGEST_NAME, Journal, Note, read_notes

UNIT, OTHER = "scenes-text/blocks.7.mlp.out/17", "scenes-text/blocks.7.mlp.out/17.2"


def now(journal):
    return {id: (note.name, note.comment) for id, note in journal.read().current.items()}


def test_names_and_comments_are_kept_apart(tmp_path):
    journal = Journal(tmp_path)
    assert now(journal) == {}
    journal.write(UNIT, name="  teal rings ")
    journal.write(UNIT, comment="also grey\nones")
    journal.write(OTHER, name="<b>&\"'")
    assert now(journal) == {UNIT: ("teal rings", "also grey\nones"), OTHER: ("<b>&\"'", None)}
    journal.write(UNIT, name=None)
    assert now(journal)[UNIT] == (None, "also grey\nones")
    journal.write(UNIT, name="", comment=" ")
    assert UNIT not in now(journal)


def test_every_change_can_be_taken_back_and_brought_back(tmp_path):
    journal = Journal(tmp_path)
    first = journal.write(UNIT, name="one")
    second = journal.write(UNIT, name="two", comment="why")
    undone = journal.undo(second.number)
    assert now(journal) == {UNIT: ("one", None)}
    again = journal.undo(undone.number)
    assert now(journal) == {UNIT: ("two", "why")}
    journal.undo(again.number)
    journal.undo(first.number)
    assert now(journal) == {}
    assert len(journal.read().changes) == 6  # nothing is ever taken out of the file
    with pytest.raises(SettingsError, match="no such change"):
        journal.undo("not-a-number")


def test_half_a_line_harms_no_other(tmp_path):
    journal = Journal(tmp_path)
    journal.write(UNIT, name="before")
    whole = (tmp_path / FILE).read_bytes()
    for cut in range(len(whole)):
        (tmp_path / FILE).write_bytes(whole + whole[:cut])
        journal.write(OTHER, name="after")
        assert now(journal)[OTHER] == ("after", None) and UNIT in now(journal)


def test_foreign_lines_are_counted_and_passed_over(tmp_path):
    journal = Journal(tmp_path)
    journal.write(UNIT, name="kept")
    deep = b"[" * 60000
    lines = [b"{", b"[]", b"3", b"\xff\xfe", deep, b"x" * 70000, b'{"number":1}', b'{"number":"a","when":"b","id":3}']
    with (tmp_path / FILE).open("ab") as file:
        file.write(b"\n".join(lines) + b"\n\n")
    notes = journal.read()
    assert notes.damaged == len(lines) and now(journal) == {UNIT: ("kept", None)}


@pytest.mark.parametrize(
    "values",
    [{}, {"name": "x" * (LONGEST_NAME + 1)}, {"name": "a\nb"}, {"comment": "bell \a"}, {"colour": "red"}],
)
def test_what_cannot_be_a_note_is_refused(tmp_path, values):
    with pytest.raises(SettingsError):
        Journal(tmp_path).write(UNIT, **values)
    assert not (tmp_path / FILE).exists()


def test_what_cannot_be_an_id_is_refused(tmp_path):
    for id in ("", "a\nb", "x" * 500):
        with pytest.raises(SettingsError, match="not the id of a unit"):
            Journal(tmp_path).write(id, name="n")


def test_a_journal_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / FILE).mkdir()
    with pytest.raises(StoreError, match="cannot be kept"):
        Journal(tmp_path).write(UNIT, name="n")
    with pytest.raises(StoreError, match="cannot be read"):
        read_notes(tmp_path)


def test_several_writers_lose_nothing(tmp_path):
    def write(writer):
        journal = Journal(tmp_path)
        for k in range(20):
            journal.write(f"m/s/{writer}.{k}", name=f"{writer} {k}")

    threads = [threading.Thread(target=write, args=(w,)) for w in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    notes = read_notes(tmp_path)
    assert len(notes.current) == 80 and notes.damaged == 0


@pytest.mark.skipif(os.name == "nt", reason="kill -9")
def test_what_was_said_to_be_kept_survives_a_kill(tmp_path):
    """A writer says each note on standard output after it was written, and is killed without warning."""
    script = (
        "import sys; from vitreous.notes import Journal; j = Journal(sys.argv[1])\n"
        "for k in range(10**6):\n    j.write(f'm/s/{k}', name=f'name {k}', comment='c' * 900); print(k, flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        said = [int(process.stdout.readline()) for _ in range(20)]
        time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    current = read_notes(tmp_path).current
    assert all(current[f"m/s/{k}"].name == f"name {k}" for k in said)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.text(max_size=20))), max_size=12))
def test_the_journal_says_what_a_dictionary_would(tmp_path_factory, changes):
    journal = Journal(tmp_path_factory.mktemp("run"))
    expected: dict[str, str] = {}
    for id, name in changes:
        try:
            journal.write(id, name=name)
        except SettingsError:
            assert not all(c.isprintable() for c in name.strip())
            continue
        kept = (name or "").strip()
        expected.pop(id, None)
        expected |= {id: kept} if kept else {}
    assert {id: note.name for id, note in journal.read().current.items()} == expected


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300), st.integers(0, 10**6))
def test_any_bytes_are_read_without_an_error(tmp_path_factory, noise, place):
    folder = tmp_path_factory.mktemp("run")
    line = json.dumps({"number": "1", "when": "now", "id": "a", "name": "n"}).encode() + b"\n"
    place %= len(line)
    (folder / FILE).write_bytes(line + line[:place] + noise + line[place:])
    assert all(isinstance(note, Note) for note in read_notes(folder).current.values())

"""Judges over HTTP, asked by a real client, served by a real server that misbehaves; answers, journal, grids."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest
from judge_server import JudgeServer, grids_of
from PIL import Image

import vitreous as vt
from vitreous.judges.answers import AGAIN, PROMPT, Judgement, read_answer
from vitreous.judges.chat import ChatJudge
from vitreous.judges.grids import CELL, GAP, draw, png
from vitreous.judges.journal import HEADER, Journal, question_key
from vitreous.provenance import start_run

KEY = "sk-very-secret-0123456789"
COLOURS = np.array([[220, 30, 30], [30, 200, 40], [40, 40, 220], [220, 200, 30], [30, 200, 210], [150, 30, 160]])


@pytest.fixture
def server():
    with JudgeServer() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield found
        found.released.set()
        found.shutdown()
        thread.join()


@pytest.fixture
def images() -> vt.ImageSet:
    """Ten noisy pictures of each of six colours, in the order of the colours."""
    rng = np.random.default_rng(0)
    noise = rng.integers(-20, 20, (60, 8, 8, 3))
    return vt.ImageSet.from_arrays(np.uint8(COLOURS.repeat(10, 0)[:, None, None] + noise))


@pytest.fixture
def tops() -> dict[str, np.ndarray]:
    """Units of one colour, of two, and of any colours."""
    rng = np.random.default_rng(1)
    one = np.array([10 * c + rng.permutation(10)[:9] for c in range(6)])
    mixed = np.concatenate([one[:, :7], np.roll(one, 1, 0)[:, :2]], 1)
    return {"mixed": mixed, "pure": one, "random": rng.permutation(60)[:54].reshape(6, 9)}


def judge(server, model="eyes", **settings) -> ChatJudge:
    return ChatJudge(server.url, model, **{"timeout": 20.0, "backoff": 0.001, **settings})


def ask(server, tops, images, journal, judges=None, **settings):
    settings = {"pairs": 4, "cell": 4, "repeats": 50, "progress": False, **settings}
    return vt.llm_rank(tops, images, judges or [judge(server)], journal=journal, **settings)


def compare(chat: ChatJudge, pauses: list[float] | None = None) -> Judgement:
    """One question: grid A red, grid B of all colours."""
    grids = [np.full((10, 10, 3), (200, 0, 0), np.uint8), np.uint8(np.arange(300).reshape(10, 10, 3) % 240)]

    def pause(seconds: float) -> bool:
        if pauses is not None:
            pauses.append(seconds)
        return False

    return chat.compare(PROMPT, [png(grid) for grid in grids], pause)


# -- the whole of it


def test_a_planted_order_is_recovered_and_nothing_is_asked_twice(server, tops, images, tmp_path):
    judges = [judge(server, model) for model in ("one", "two", "three")]
    found = ask(server, tops, images, tmp_path / "j.jsonl", judges)
    assert found.kind == "LLM Rank" and found.judges == ("one", "two", "three")
    assert dict(zip(found.methods, found.ranks.tolist(), strict=True)) == {"pure": 1, "mixed": 2, "random": 3}
    assert found.unanimous == 1 and found.consistent.tolist() == [1, 1, 1] and found.first.tolist() == [0.5] * 3
    assert len(server.asked) == 3 * 4 * 2 * 3  # method pairs, unit pairs, orders, judges
    again = ask(server, tops, images, tmp_path / "j.jsonl", judges)
    assert len(server.asked) == 72 and again.as_json() == found.as_json()
    more = ask(server, tops, images, tmp_path / "j.jsonl", judges, pairs=6)
    assert 72 < len(server.asked) and more.ranks.tolist() == found.ranks.tolist()


def test_what_a_judge_is_sent(server, tops, images, tmp_path):
    ask(server, tops, images, tmp_path / "j.jsonl", pairs=1, cell=5)
    body = server.asked[0]
    assert (body["model"], body["temperature"], body["max_tokens"], body["seed"]) == ("eyes", 0, 256, 42)
    content = body["messages"][0]["content"]
    assert [part.get("text") for part in content] == [PROMPT, "Grid A:", None, "Grid B:", None]
    a, b = grids_of(body)
    assert a.shape == b.shape == (15 + 2 * GAP, 15 + 2 * GAP, 3)
    other_way = [np.stack(grids_of(each))[::-1] for each in server.asked]
    assert any(np.array_equal(np.stack([a, b]), each) for each in other_way)
    assert server.keys == [None] * len(server.asked)


def test_options_are_sent_taken_out_and_asked_anew(server):
    compare(judge(server, options={"max_tokens": None, "max_completion_tokens": 300, "top_p": 1}))
    body = server.asked[0]
    assert "max_tokens" not in body and (body["max_completion_tokens"], body["top_p"]) == (300, 1)
    keys = {question_key(judge(server, **s), p, g) for s, p, g in _questions()}
    assert len(keys) == 5
    elsewhere = ChatJudge("http://elsewhere/v1", "eyes")
    assert question_key(elsewhere, "p", ("a", "b")) == question_key(judge(server), "p", ("a", "b"))


def _questions():
    yield {}, "p", ("a", "b")
    yield {}, "p", ("b", "a")
    yield {}, "q", ("a", "b")
    yield {"model": "ears"}, "p", ("a", "b")
    yield {"options": {"temperature": 1}}, "p", ("a", "b")


def test_questions_run_side_by_side_but_not_too_many(server, tops, images, tmp_path):
    server.linger = 0.02
    ask(server, tops, images, tmp_path / "j.jsonl", concurrent=3)
    assert 1 < server.busiest <= 3


# -- a server that misbehaves


@pytest.mark.parametrize("act", [500, 502, 503, 504, 408, "truncated", "schema", "not json", "reset"])
def test_passing_trouble_is_tried_again(server, act):
    server.script.extend([act, act])
    pauses: list[float] = []
    assert compare(judge(server, tries=3, backoff=0.5), pauses).choice == "A"
    assert len(server.asked) == 3
    assert 0.25 <= pauses[0] <= 0.5 and pauses[1] == pytest.approx(2 * pauses[0])  # growing, and not all alike
    server.script.extend([act] * 3)
    with pytest.raises(
        vt.JudgeError, match=r"eyes at http://127.0.0.1:\d+/v1 does not answer: .*(.|\n)*given:    '3 t"
    ):
        compare(judge(server, tries=3))


@pytest.mark.parametrize("act", ["slow", "drip"])
def test_a_slow_server_is_given_up_on(server, act):
    server.script.append(act)
    assert compare(judge(server, timeout=1.0, tries=20)).choice == "A"
    server.always = act
    with pytest.raises(vt.JudgeError, match=r"no answer within 0\.2 seconds"):
        compare(judge(server, timeout=0.2, tries=1))


def test_being_told_to_slow_down_costs_no_try(server):
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    server.script.extend([(429, {"Retry-After": "7"}), (429, {"Retry-After": soon}), (429, {"Retry-After": "soon"})])
    pauses: list[float] = []
    assert compare(judge(server, tries=1, backoff=0.1), pauses).choice == "A"
    assert pauses[0] == 7 and 30 < pauses[1] <= 90 and pauses[2] <= 0.1
    server.script.append((429, {"Retry-After": "3600"}))
    with pytest.raises(vt.JudgeError, match="does not answer: status 429"):
        compare(judge(server, patience=600))


@pytest.mark.parametrize("soon", ["0", "-5", "nan", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_server_that_always_says_slow_down_is_given_up_on(server, soon):
    """It is never told to wait, and no try is ever used up."""
    server.script.extend([(429, {"Retry-After": soon})] * 100)
    with pytest.raises(vt.JudgeError, match="does not answer: status 429"):
        compare(judge(server, backoff=0, patience=1))
    assert 2 < len(server.asked) < 50


@pytest.mark.parametrize(
    ("status", "remedy"), [(400, "options="), (401, "check the key in EYES"), (404, "ends before")]
)
def test_a_refused_request_is_not_tried_again(server, monkeypatch, status, remedy):
    monkeypatch.setenv("EYES", KEY)
    server.always = status
    with pytest.raises(vt.JudgeError, match=f"refuses the request: status {status}") as error:
        compare(judge(server, key_variable="EYES"))
    assert len(server.asked) == 1 and server.keys == [f"Bearer {KEY}"]
    assert remedy in str(error.value) and "***" in str(error.value) and KEY not in str(error.value)


def test_a_redirect_does_not_take_the_key_along(server, monkeypatch):
    monkeypatch.setenv("EYES", KEY)
    with JudgeServer() as other:
        server.always = (302, {"Location": f"{other.url}/chat/completions"})
        with pytest.raises(vt.JudgeError, match="status 302"):
            compare(judge(server, key_variable="EYES"))
        assert other.asked == []


def test_nobody_there(tops, images, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    nobody = ChatJudge(url, "eyes", tries=2, backoff=0.001)
    with pytest.raises(vt.JudgeError, match=r"24 of 24 judgements missing: eyes at .* does not answer: Conn") as error:
        ask(None, tops, images, tmp_path / "j.jsonl", [nobody])
    assert f"run again: 0 judgements are kept in {tmp_path / 'j.jsonl'}" in str(error.value)


def test_one_judge_falls_ill_and_nothing_is_lost(server, tops, images, tmp_path):
    judges = [judge(server, "well"), judge(server, "ill")]
    server.dead_models = {"ill"}
    with pytest.raises(vt.JudgeError, match=r"24 of 24 judgements missing: ill at .*(.|\n)*run again: 24 judgements"):
        ask(server, tops, images, tmp_path / "j.jsonl", judges)
    server.dead_models, before = set(), len(server.asked)
    found = ask(server, tops, images, tmp_path / "j.jsonl", judges)
    assert [body["model"] for body in server.asked[before:]] == ["ill"] * 24
    fresh = ask(server, tops, images, tmp_path / "other.jsonl", judges)
    assert found.as_json() == fresh.as_json()


def test_a_killed_run_asks_only_what_is_missing(server, tops, images, tmp_path):
    np.save(tmp_path / "pixels.npy", np.stack([np.asarray(picture.image) for picture in images]))
    np.savez(tmp_path / "tops.npz", **tops)
    script = f"""
        import numpy as np, vitreous as vt
        images = vt.ImageSet.from_arrays(np.load("pixels.npy"))
        tops = dict(np.load("tops.npz"))
        judge = vt.ChatJudge({server.url!r}, "eyes")
        vt.llm_rank(tops, images, [judge], journal="j.jsonl", pairs=4, cell=4, concurrent=2, progress=False)
    """
    server.script.extend(["answer"] * 10)
    server.always = "slow"  # so that it cannot finish before it is killed
    running = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path)
    while len(server.asked) < 12 and running.poll() is None:
        time.sleep(0.01)
    running.kill()
    running.wait()
    journal = tmp_path / "j.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"key": "torn in the mid')
    kept, before = journal.read_bytes().count(b"\n") - 1, len(server.asked)
    assert 0 < kept <= 10
    server.always = "answer"
    found = ask(server, tops, images, journal)
    assert len(server.asked) - before == 24 - kept
    lines = journal.read_bytes().splitlines()
    assert len(lines) == 25 and all(json.loads(line) for line in lines)
    assert found.as_json() == ask(server, tops, images, tmp_path / "whole.jsonl", repeats=50).as_json()


# -- answers


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ('{"grid_a": "dogs", "grid_b": "", "answer": "A"}', "A"),
        ('```json\n{"grid_a": "x", "grid_b": "y", "answer": "b"}\n```', "B"),
        ('Sure! {"answer": "Grid B"} I hope that helps {you}.', "B"),
        ('<think>{"answer": "A"} or so</think>{"answer": "B"}', "B"),
        ('The form is {"answer": "<A or B>"}.\n{"answer": "A."}', "A"),
        ('{"grid_a": "a "quoted" word", "answer": "B"}', "B"),  # broken JSON, but the answer is whole
        ("B", "B"),
        (" grid a. ", "A"),
    ],
)
def test_answers_that_count(text, choice):
    assert (read_answer(text).choice, read_answer(text).why) == (choice, "answered")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "unreadable"),
        ("Grid A is clearly more coherent.", "unreadable"),
        ('{"grid_a": "dogs", "grid_b": "some', "unreadable"),
        ('{"answer": "A"} no, {"answer": "B"}', "unreadable"),
        ('"answer": "A" or "answer": "B"', "unreadable"),
        ('{"answer": "both"}', "undecided"),
        ('{"answer": null}', "undecided"),
        ('{"answer": ["A"]}', "undecided"),
        ("{" * 100_000, "unreadable"),
    ],
)
def test_answers_that_do_not(text, why):
    assert (read_answer(text).choice, read_answer(text).why) == (None, why)


def test_sentences_are_kept_and_a_refusal_is_one():
    assert read_answer('{"grid_a": "dogs", "grid_b": "nothing", "answer": "A"}').said == ("dogs", "nothing")
    assert read_answer("", "I cannot look at this") == Judgement(None, "refused", ("I cannot look at this",))


def test_what_cannot_be_read_is_asked_for_once_more_and_then_counts_for_nobody(server, tops, images, tmp_path):
    server.script.append("Well, A I guess?")
    assert compare(judge(server)).choice == "A"
    assert [m["role"] for m in server.asked[-1]["messages"]] == ["user", "assistant", "user"]
    assert server.asked[-1]["messages"][-1]["content"] == AGAIN
    server.always = "I would rather not say."
    found = ask(server, tops, images, tmp_path / "j.jsonl", pairs=1)
    assert found.dropped == 6 and np.isnan(found.rates).all()
    before = len(server.asked)
    ask(server, tops, images, tmp_path / "j.jsonl", pairs=1)
    assert len(server.asked) == before  # it was an answer: not asked again


def test_refusals_and_parts(server):
    server.script.append({"content": None, "refusal": "no"})
    assert compare(judge(server)) == Judgement(None, "refused", ("no",))
    server.script.append({"content": [{"type": "text", "text": '{"answer": "B"}'}]})
    assert compare(judge(server)).choice == "B"
    server.script.extend([{"content": 3}, {"content": "A", "refusal": 4}, {"text": "A"}])
    assert compare(judge(server)).choice == "A" and len(server.asked) == 6


# -- keys


def test_the_key_is_sent_and_stands_nowhere_else(server, tops, images, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("EYES", f" {KEY}\n")
    keyed = judge(server, key_variable="EYES")
    server.script.extend([500, f"your key is {KEY}", f"your key is {KEY}"])
    with start_run(tmp_path, "judging", {"judges": [keyed]}) as run:
        found = ask(server, tops, images, tmp_path / "j.jsonl", [keyed], concurrent=1)
        run.note(ranking=found.as_json())
    assert set(server.keys) == {f"Bearer {KEY}"}
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"your key is ***" in written
    assert KEY.encode() not in written and KEY not in repr(keyed) + found.table() + "".join(capfd.readouterr())


@pytest.mark.parametrize("value", ["", " ", "two\nlines", "schlüssel"])
def test_a_missing_key_is_found_before_anything_is_asked(server, tops, images, tmp_path, monkeypatch, value):
    monkeypatch.setenv("EYES", value)
    with pytest.raises(
        vt.SettingsError, match=r"no usable key for eyes(.|\n)*'EYES'\n  remedy:   export EYES="
    ) as error:
        ask(server, tops, images, tmp_path / "j.jsonl", [judge(server, key_variable="EYES")])
    assert server.asked == [] and (not value.strip() or value not in str(error.value))


# -- the journal


def test_a_torn_journal_is_mended_and_a_foreign_file_left_alone(tmp_path):
    path = tmp_path / "deep" / "j.jsonl"
    with Journal(path) as journal:
        journal.add("k1", Judgement("A", "answered", ("x", "y")), model="eyes")
        journal.add("k1", Judgement("B", "answered"))  # the first counts
        journal.add("k2", Judgement(None, "refused", ("no",)))
    whole = path.read_bytes()
    for cut in (*range(0, len(whole), 7), len(whole) - 1):
        path.write_bytes(whole[:cut])
        with Journal(path) as journal:
            assert len(journal) == max(0, whole[:cut].count(b"\n") - 1)
            journal.add("k3", Judgement("B", "answered"))
        with Journal(path) as journal:
            assert journal.get("k3") == Judgement("B", "answered")
    path.write_bytes(whole)
    with Journal(path) as journal:
        assert journal.get("k1") == Judgement("A", "answered", ("x", "y")) and journal.get("k2").vote == 0
    path.write_bytes(whole.replace(b'"k1"', b'"k1'))
    with pytest.raises(vt.StoreError, match=r"line 2 of .* is damaged\n  remedy:   take the line out"):
        Journal(path)
    for foreign in (b"my thesis", b'["a"]\nmore', b'{"format": "other"}\n'):
        path.write_bytes(foreign)
        with pytest.raises(vt.StoreError, match="not a journal of judgements"):
            Journal(path)
        assert path.read_bytes() == foreign
    path.write_bytes(json.dumps(HEADER | {"version": 9}).encode() + b"\n")
    with pytest.raises(vt.StoreError, match="another version\n  given:    9\n  accepted: 1"):
        Journal(path)


@pytest.mark.skipif(sys.platform == "win32", reason="has no such locks")
def test_a_second_run_does_not_write_into_a_journal(tmp_path):
    """Both would pay for the same answers, and write over each other's lines."""
    path = tmp_path / "j.jsonl"
    with Journal(path) as journal:
        journal.add("k1", Judgement("A", "answered"))
        with pytest.raises(vt.StoreError, match=r"another run writes into this journal(.*\n)*.*wait until it ends"):
            Journal(path)
        journal.add("k2", Judgement("B", "answered"))
    with Journal(path) as journal:
        assert len(journal) == 2


# -- grids


def test_top_pictures():
    import torch

    rng = np.random.default_rng(0)
    activations = rng.normal(size=(40, 5, 6)).astype(np.float32)
    activations[..., 2] = -abs(activations[..., 2])  # never active
    activations[7:, :, 3] = 0
    activations[:7, :, 3] = abs(activations[:7, :, 3])  # in seven pictures
    found = vt.top_pictures(activations, batch_size=7, progress=False)
    wanted = np.argsort(-activations.max(1), axis=0, kind="stable")[:9].T
    np.testing.assert_array_equal(found[[0, 1, 3, 4, 5]], wanted[[0, 1, 3, 4, 5]])
    assert (found[2] == -1).all()
    assert (vt.top_pictures(activations, active_in=9, progress=False)[[2, 3]] == -1).all()
    np.testing.assert_array_equal(
        vt.top_pictures(torch.tensor(activations).half().float(), progress=False)[0], wanted[0]
    )
    assert vt.top_pictures(activations[:, 0], progress=False).shape == (6, 9)
    mean = vt.top_pictures(activations, pool="mean", progress=False)[0]
    np.testing.assert_array_equal(mean, np.argsort(-activations[..., 0].mean(1), kind="stable")[:9])
    assert (vt.top_pictures(np.ones((20, 2)), progress=False) == -1).all()  # always the same
    with pytest.raises(vt.SettingsError, match="no such way to pool tokens\n  given:    'sum'\n  accepted: max, mean"):
        vt.top_pictures(activations, pool="sum")


def test_a_grid_is_nine_squares_in_reading_order():
    pictures = [Image.new("RGB", (6 + k, 9), (20 * k, 0, 0)) for k in range(9)]
    grid = draw(pictures, 10)
    assert grid.shape == (30 + 2 * GAP, 30 + 2 * GAP, 3) and draw(pictures).shape[0] == 3 * CELL + 2 * GAP
    step = 10 + GAP
    assert [int(grid[5 + step * r, 5 + step * c, 0]) for r in range(3) for c in range(3)] == [20 * k for k in range(9)]
    assert (grid[10 : 10 + GAP] == 255).all()


# -- what is refused


def test_what_is_refused(server, tops, images, tmp_path):
    journal = tmp_path / "j.jsonl"
    with pytest.raises(vt.SettingsError, match="no two alike"):
        ask(server, tops, images, journal, [judge(server), judge(server, name="again")])
    with pytest.raises(vt.SettingsError, match="one judge or more"):
        vt.llm_rank(tops, images, [], journal=journal)
    with pytest.raises(vt.SettingsError, match=r"numbers of 9 pictures\n  given:    'pure: int64 \(6, 4\)'"):
        ask(server, tops | {"pure": tops["pure"][:, :4]}, images, journal)
    with pytest.raises(
        vt.SettingsError, match=r"no such picture\n  given:    'pure: 98'\n  accepted: numbers below 60"
    ):
        ask(server, tops | {"pure": tops["pure"] + 40}, images, journal)
    with pytest.raises(vt.SettingsError, match="without a unit that can be shown\n  given:    'pure'"):
        ask(server, tops | {"pure": np.full((3, 9), -1)}, images, journal)
    with pytest.raises(vt.SettingsError, match="concurrent and cell"):
        ask(server, tops, images, journal, concurrent=0)
    assert server.asked == []
    with pytest.raises(vt.SettingsError, match="address of an endpoint\n  given:    'localhost:8000'"):
        ChatJudge("localhost:8000", "eyes")
    for url in (f"http://me:{KEY}@host/v1", f"http://host/v1?key={KEY}"):
        with pytest.raises(vt.SettingsError, match="key_variable=") as error:
            ChatJudge(url, "eyes")
        assert KEY not in str(error.value)
    with pytest.raises(vt.SettingsError, match="a model, a time-out and a try"):
        ChatJudge("http://host/v1", "eyes", tries=0)
    with pytest.raises(vt.SettingsError, match=r"\(sample, token, unit\)"):
        vt.top_pictures(np.zeros(3))
    with pytest.raises(vt.SettingsError, match="as many pictures as are shown"):
        vt.top_pictures(np.zeros((8, 3)))
    with pytest.raises(vt.SettingsError, match="hold NaN\n  given:    'pictures 0 to 9'"):
        vt.top_pictures(np.full((10, 3), np.nan), progress=False)

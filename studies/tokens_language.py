"""Which words does a continuation rest on? Figures 6, 7, 16 and 17 of the tokens paper with stories15M.

    python studies/tokens_language.py --data ../shared/data --work FOLDER [--quick]

stories15M never saw a summary, so there are two kinds of text: stories that it wrote itself, where the "summary" is how
it went on, and short stories with a summary written for this study. Scores of context words (eq. 13): the lens with sum
and energy after the last block and in the middle, attention rollout, raw attention, the gradient of the summary's
log-probability times the embedding, and how late a word stands, which knows nothing of the text. Words with the highest
scores are taken out (eq. 17), against random words, and against each word's own drop when it alone is gone. Writes
tokens_language.json, .md, .html and two .png under --out.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import vitreous as vt
from real_models import stories15m
from tokens_inputs import asked, kept, parser_of, put_tables
from vitreous.evidence.comprehensiveness import RATES, Comprehensiveness, comprehensiveness
from vitreous.provenance import json_bytes, versions
from vitreous.render import to_png
from vitreous.views.panels import Curve, Line
from vitreous.views.token_text import text_html, text_picture

CONTEXT, SUMMARY, STORIES, DRAWS, SHOWN = 72, 20, 24, 4, 6  # tokens, tokens, texts, random sets, texts in Figure 6
TEMPERATURE = 0.8
PARTS = ("rates", "values", "random", "support")
WRITTEN = (
    (
        "Tom had a red ball. He took the red ball to the park. A big dog ran to Tom and took the ball in its "
        "mouth. Tom was sad and began to cry. The sun was warm and the birds were singing. Then the dog came "
        "back and gave the ball to Tom. Tom was happy again.",
        "The dog took the red ball, but gave it back to Tom.",
    ),
    (
        "Lily and her mom went to the shop. The shop was full of people. Lily saw a small blue hat and wanted "
        "it. Mom said that the hat cost too much. At home Lily helped mom clean the kitchen. Mom was very "
        "proud. The next day mom bought the blue hat for Lily.",
        "Lily helped her mom, so her mom bought her the blue hat.",
    ),
    (
        "There was a little bird in a tree. The bird could not fly, because its wing was hurt. It was a cold "
        "day and the wind was loud. A boy named Ben saw the bird. Ben took the bird home and gave it food and "
        "water. After many days the wing was good, and the bird could fly.",
        "Ben helped the bird with the hurt wing until it could fly.",
    ),
    (
        "Sara and Max wanted to make a cake. They put flour, eggs and sugar in a bowl. The cat sat on the "
        "chair and looked at them. Max forgot the cake in the oven. Soon there was a bad smell. The cake was "
        "black. Sara laughed and they ate apples.",
        "The cake was black, because Max forgot it in the oven.",
    ),
    (
        "One day a boy named Tim found a key in the garden. The key was old and made of gold. Tim asked his "
        "grandma about it. They drank tea and ate bread. Grandma went up to her room and came back with a "
        "box. The gold key opened the box. In the box there was a letter.",
        "Tim found a gold key that opened the box of his grandma.",
    ),
    (
        "Anna was scared of the water. All her friends could swim in the lake. The lake was big and there "
        "were ducks on it. Her dad said that he would hold her hand. Every day they went a little deeper. At "
        "the end of the summer Anna could swim alone.",
        "Her dad held her hand, and Anna was not scared of the water.",
    ),
    (
        "Ben had a new kite. It was green and very big. His mom made soup in the kitchen. Ben ran up the hill "
        "with the kite. The wind was strong. The kite got stuck in a tall tree. A bird sat on a branch and "
        "sang. Ben's dad came with a ladder and got the kite down.",
        "Ben's kite got stuck in a tree, and his dad got it down with a ladder.",
    ),
    (
        "Mia lost her doll. She looked under the bed and in the box. The sun was shining and a car went by. "
        "Mia asked her brother. He did not know. In the evening the cat came in from the garden. The cat had "
        "the doll in its mouth. Mia hugged her doll and went to sleep.",
        "Mia could not find her doll, but the cat brought it back.",
    ),
    (
        "There was a frog who could not jump. The other frogs laughed at him. The flowers by the pond were "
        "yellow. A kind duck told him to try every day. The frog tried and tried. It rained a lot that week. "
        "One morning he jumped over a big rock. The other frogs clapped.",
        "The frog tried every day until he could jump over a rock.",
    ),
    (
        "Sam and Lucy played in the snow. They made a big snowman. Lucy gave it a carrot for a nose. Their "
        "dog ate the carrot. Sam had blue gloves. Lucy was sad and cried. Then mom gave them a potato. The "
        "snowman got a new nose, and they all laughed.",
        "The dog ate the carrot, so the snowman got a potato for a nose.",
    ),
    (
        "A little boat was alone on the lake. It was old and had a hole. The ducks swam by and the trees were "
        "tall. A man named Joe saw the boat. He fixed the hole with wood and painted the boat red. Joe liked "
        "to eat fish. Now children ride in the boat every day.",
        "Joe fixed the old boat, and now children ride in it.",
    ),
    (
        "Nina wanted to bake bread for her grandma. She had flour and water but no salt. It was a quiet day. "
        "Nina went to her neighbor, Mr. Lee. He gave her some salt and a smile. His house had a green door. "
        "Nina baked the bread. Grandma said it was the best bread ever.",
        "Mr. Lee gave Nina salt, and she baked bread for her grandma.",
    ),
    (
        "Max was afraid of the dark. Every night he saw a big shadow on the wall. The moon was round and the "
        "house was warm. His sister gave him a lamp that looked like a star. Max turned on the lamp. The "
        "shadow was only his coat. Max laughed and was not afraid.",
        "With the lamp from his sister Max saw that the shadow was only his coat.",
    ),
    (
        "The farmer had a lazy horse. The horse did not want to pull the cart. The corn was high and the sky "
        "was blue. The farmer's little girl gave the horse an apple. She sang a song to it. The pigs were "
        "asleep. The horse stood up and pulled the cart to the town.",
        "The girl gave the lazy horse an apple, and then it pulled the cart.",
    ),
    (
        "Leo and Emma found a wallet in the park. There was a lot of money in it. Leo wanted to buy toys. Ice "
        "cream is cold and sweet. Emma said that it was not their money. They gave the wallet to a police "
        "man. The next day an old lady thanked them and gave them cookies.",
        "Emma and Leo gave back the wallet, and an old lady gave them cookies.",
    ),
    (
        "A mouse lived in a big house. It was hungry every night. The clock in the hall was loud. There was "
        "cheese on the table, but there was a cat too. The mouse threw a ball of wool. The cat ran after the "
        "wool. The windows were clean. The mouse took the cheese and ran home.",
        "The mouse threw wool for the cat and took the cheese.",
    ),
    (
        "Ella planted a seed in a pot. She gave it water each day. Her friend had a yellow bike. For a long "
        "time nothing came out. Ella was sad and wanted to throw the pot away. Her grandpa told her to wait. "
        "They ate rice for lunch. In spring a big red flower grew in the pot.",
        "Ella waited as her grandpa told her, and a red flower grew from the seed.",
    ),
    (
        "Jack had to sing at school. He forgot the words of the song. His shoes were new and black. The "
        "children looked at him. His friend Amy stood up and began to sing with him. There were chairs and a "
        "piano in the room. Jack remembered the words. All the people clapped for Jack and Amy.",
        "Jack forgot the words of the song, so his friend Amy sang with him.",
    ),
)


@dataclass(frozen=True, eq=False)
class Read:
    """Token ids of a context, which begins with the token that starts a text, and of what follows."""

    context: tuple[int, ...]
    summary: tuple[int, ...]

    @property
    def ids(self) -> Tensor:
        return torch.tensor([[*self.context, *self.summary]])


# -- texts


@torch.inference_mode()
def own_stories(subject: vt.Subject, count: int, seed: int = 0) -> list[Read]:
    """Stories that the model wrote from the first word on, drawn from its probabilities."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.ones(count, 1, dtype=torch.long)  # the token that starts a text
    step, past = ids, None
    while ids.shape[1] < CONTEXT + SUMMARY:
        out = subject.module(step, past_key_values=past, use_cache=True)
        past = out.past_key_values
        p = (out.logits[:, -1] / TEMPERATURE).softmax(-1)
        p[:, :3] = 0  # no end of a text
        step = torch.multinomial(p, 1, generator=generator)
        ids = torch.cat([ids, step], 1)
    return [Read(tuple(row[:CONTEXT]), tuple(row[CONTEXT:])) for row in ids.tolist()]


def written(subject: vt.Subject) -> list[Read]:
    pairs = [(subject.inputs(x)[0].tolist(), subject.inputs(y)[0].tolist()) for x, y in WRITTEN]
    return [Read(tuple(x), tuple(y[1:])) for x, y in pairs]


# -- the model's opinion


def log_probability(subject: vt.Subject, text: Read, kept: Sequence[np.ndarray], batch: int = 16) -> np.ndarray:
    """log π(y | the kept part of x), eq. 16: (question,)."""
    found = []
    for first in range(0, len(kept), batch):
        part = kept[first : first + batch]
        rows = [torch.tensor([text.context[k] for k in one] + list(text.summary)) for one in part]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        with torch.inference_mode():
            logs = subject(ids).log_softmax(-1)
        for one, row, said in zip(part, rows, logs, strict=True):
            at = torch.arange(len(one) - 1, len(row) - 1)
            found.append(float(said[at, row[at + 1]].sum()))
    return np.array(found)


# -- scores of context words (token,)


def lens(subject: vt.Subject, text: Read, target: str = "sum", block: int = -1) -> np.ndarray:
    return vt.context_scores(subject, text.context, text.summary, block, target=target, progress=False).scores


def flow(make: Callable[..., vt.TokenMaps], subject: vt.Subject, text: Read) -> np.ndarray:
    n = len(text.context)
    return make(subject, text.ids.tolist(), progress=False).scores[0, n:, :n].mean(0)


def gradient(subject: vt.Subject, text: Read) -> np.ndarray:
    """|gradient of the summary's log-probability · embedding|."""
    kept: list[Tensor] = []

    def cut(value: Tensor) -> Tensor:
        kept.append(value.detach().requires_grad_())
        return kept[-1]

    n, ids = len(text.context), text.ids
    with torch.enable_grad(), vt.patch(subject, {"blocks.0.resid.in": cut}):
        logs = subject(ids).log_softmax(-1)[0]
        at = torch.arange(n - 1, ids.shape[1] - 1)
        (g,) = torch.autograd.grad(logs[at, ids[0, at + 1]].sum(), kept[:1])
    return (g * kept[0].detach()).sum(-1)[0, :n].abs().numpy()


def alone(subject: vt.Subject, text: Read) -> np.ndarray:
    """What the summary loses when a word alone is gone."""
    n = len(text.context)
    kept = [np.arange(n), *(np.delete(np.arange(n), k) for k in range(1, n))]
    support = log_probability(subject, text, kept)
    return np.concatenate([[0.0], support[0] - support[1:]])


def lateness(_: vt.Subject, text: Read) -> np.ndarray:
    return np.arange(len(text.context), dtype=float)


SCORES: dict[str, Callable[[vt.Subject, Read], np.ndarray]] = {
    "tokens, sum": lens,
    "tokens, energy": partial(lens, target="energy"),
    "tokens, sum, middle block": partial(lens, block=2),
    "attention rollout": partial(flow, vt.attention_rollout),
    "raw attention": partial(flow, vt.raw_attention),
    "gradient x embedding": gradient,
    "how late a word stands": lateness,
    "each word alone": alone,
}


# -- results


class Asked:
    """Log-probabilities that were asked before are not computed again: random sets are the same for all methods."""

    def __init__(self, subject: vt.Subject) -> None:
        self.subject = subject
        self.known: dict[tuple[Read, bytes], float] = {}

    def __call__(self, text: Read, kept: Sequence[np.ndarray]) -> list[float]:
        keys = [(text, part.tobytes()) for part in kept]
        new = [k for k, key in enumerate(keys) if key not in self.known]
        found = log_probability(self.subject, text, [kept[k] for k in new])
        self.known |= {keys[k]: float(value) for k, value in zip(new, found, strict=True)}
        return [self.known[key] for key in keys]


def of_text(subject: vt.Subject, text: Read, number: int, path: Path) -> dict[str, Comprehensiveness]:
    """{method: eq. 17 of one text}, kept in a file."""

    def measure() -> dict[str, np.ndarray]:
        ask, arrays = Asked(subject), {}
        for method, score in SCORES.items():
            found = comprehensiveness([(score(subject, text), partial(ask, text))], fixed=[0], draws=DRAWS, seed=number)
            arrays |= {f"{method} {part}": found.__dict__[part] for part in PARTS}
        return arrays

    stored = kept(path, measure)
    return {m: Comprehensiveness(*(stored[f"{m} {part}"] for part in PARTS)) for m in SCORES}


def together(parts: Sequence[Comprehensiveness]) -> Comprehensiveness:
    return Comprehensiveness(parts[0].rates, *(np.concatenate([p.__dict__[name] for p in parts]) for name in PARTS[1:]))


def summary(found: Comprehensiveness) -> dict[str, Any]:
    parts = {"value": found.curve(), "random": found.random_curve(), "value - random": found.gap()}
    return {name: [[e.value, e.low, e.high] for e in curve] for name, curve in parts.items()} | {
        "as printed": found.as_printed.mean(0).tolist(),
        "log-probability of the summary": found.support.tolist(),
    }


def table(result: dict[str, Any]) -> list[str]:
    lines = ["| scores | " + " | ".join(f"{100 * r:g} %" for r in RATES) + " |", "|---|" + "---|" * len(RATES)]
    for method, found in result.items():
        cells = []
        for estimate, (_, low, high) in zip(found["value"], found["value - random"], strict=True):
            mark = "" if low > 0 else " ↓" if high < 0 else " ="
            cells.append(f"{span(estimate)}{mark}")
        lines.append(f"| {method} | {' | '.join(cells)} |")
    chance = next(iter(result.values()))["random"]
    lines.append("| random words | " + " | ".join(map(span, chance)) + " |")
    return lines


def span(estimate: Sequence[float]) -> str:
    value, low, high = estimate
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def figure_17(result: dict[str, Any], title: str) -> bytes:
    x = tuple(100 * r for r in RATES)
    lines = []
    for k, (method, found) in enumerate(result.items()):
        y = tuple(v for v, _, _ in found["value"])
        lines.append(Line(method, y, k % 6, control=method in ("how late a word stands", "each word alone")))
    chance = next(iter(result.values()))["random"]
    y, low, high = (tuple(part[i] for part in chance) for i in range(3))
    lines.append(Line("random words", y, 6, control=True, low=low, high=high))
    return to_png(Curve(title, x, tuple(lines), "% of the context taken out", "comprehensiveness"), width=8, dpi=90)


def words(subject: vt.Subject, text: Read) -> list[str]:
    """Pieces of the context as they are written."""
    tokens = subject.tokenizer
    return [tokens.decode([t]) if t > 2 else "" for t in text.context]


def figure_6(subject: vt.Subject, texts: Sequence[Read], width: int = 760) -> tuple[bytes, str]:
    """Contexts coloured by the lens (sum), each above its summary: as PNG and as HTML."""
    rows, page = [], []
    for text in texts:
        said = subject.tokenizer.decode(list(text.summary)).strip()
        shown, scores = words(subject, text)[1:], lens(subject, text)[1:]
        under = [f"   {word}" if k == 0 else f" {word}" for k, word in enumerate(["summary:", *said.split()])]
        rows += [text_picture(shown, scores, width=width), text_picture(under, np.zeros(len(under)), width=width)]
        rows.append(np.full((22, width, 3), 255, np.uint8))
        page.append(f"{text_html(shown, scores)}<p><b>Summary:</b> {said}</p>")
    file = io.BytesIO()
    Image.fromarray(np.pad(np.concatenate(rows), ((12, 0), (16, 16), (0, 0)), constant_values=255)).save(file, "PNG")
    return file.getvalue(), "\n<hr>\n".join(page)


def main() -> None:
    parser = parser_of(__doc__, quick="three texts of a kind")
    parser.add_argument("--stories", type=int, default=STORIES)
    given = asked(parser)
    subject = stories15m(given.data)
    count = 3 if given.quick else given.stories
    kinds = {"own stories": own_stories(subject, STORIES)[:count], "written": written(subject)}
    if given.quick:
        kinds["written"] = kinds["written"][:count]
    result: dict[str, Any] = {}
    for kind, texts in kinds.items():
        folder = given.work / "language" / kind
        found = [of_text(subject, text, k, folder / f"{k}.npz") for k, text in enumerate(texts)]
        result[kind] = {method: summary(together([one[method] for one in found])) for method in SCORES}
        print(kind, "done", flush=True)
    about = {"texts": {kind: len(texts) for kind, texts in kinds.items()}, "context": CONTEXT, "summary": SUMMARY}
    about |= {"random sets": DRAWS, "rates": RATES, "versions": versions()}
    (given.out / "tokens_language.json").write_bytes(json_bytes({"about": about, "comprehensiveness": result}))
    put_tables(given.out / "tokens_language.md", {kind: table(by) for kind, by in result.items()})
    title = f"stories15M: {count} stories of its own, words taken out by their score"
    (given.out / "tokens_language.png").write_bytes(figure_17(result["own stories"], title))
    drawn, page = figure_6(subject, kinds["written"][:SHOWN])
    (given.out / "tokens_language_words.png").write_bytes(drawn)
    (given.out / "tokens_language.html").write_text(f"<!doctype html><meta charset=utf-8>\n{page}\n")


if __name__ == "__main__":
    main()

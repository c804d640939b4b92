from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

import vitreous as vt
from reference import structure_loss as twin
from vitreous.kernels import device_clusters
from vitreous.kernels.device_clusters import float_components
from vitreous.training import clustering
from vitreous.training.clustering import find_terms, unit_roots
from vitreous.training.streams import Pick

DEPTH, WIDTH, TOKENS = 5, 8, 6


class Mixer(nn.Module):
    """A block of a residual stream, of a class that no family knows."""

    def __init__(self) -> None:
        super().__init__()
        self.across, self.along = nn.Linear(TOKENS, TOKENS), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.02 * (self.across(x.mT).mT + self.along(x).tanh())


class Stream(nn.Module):
    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.blocks = nn.Sequential(*(Mixer() for _ in range(DEPTH)))
            self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean(1))


BLOCKS = [f"blocks.{n}" for n in range(DEPTH)]


def batches(count: int, size: int = 24, seed: int = 1) -> list[tuple[torch.Tensor, torch.Tensor]]:
    g = torch.Generator().manual_seed(seed)
    return [
        (torch.randn(size, TOKENS, WIDTH, generator=g), torch.randint(3, (size,), generator=g)) for _ in range(count)
    ]


def structured(model: nn.Module, **settings: object) -> vt.StructureLoss:
    return vt.StructureLoss(model, **({"every": 3, "bins": 10, "threshold": 1.5, "blocks": BLOCKS} | settings))


def started(model: nn.Module, **settings: object) -> vt.StructureLoss:
    """One that has seen how many tokens there are."""
    loss = structured(model, **settings)
    loss(model(batches(1)[0][0]).mean())
    return loss


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters()]


def every_block(model: Stream, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and (sample, layer, token, channel), by hand."""
    streams = []
    for block in model.blocks:
        x = block(x)
        streams.append(x)
    return model.head(x.mean(1)), torch.stack(streams, 1)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_loss_and_gradients_are_those_of_the_formula(reduce):
    model = Stream()
    loss = started(model, layers=3, tokens=2, gamma=0.5, reduce=reduce)
    found, pending, kept_some, dropped_some = [], [], False, False
    for step, (x, y) in enumerate(batches(12)):
        main = nn.functional.cross_entropy(model(x), y) * (3e-4 if step % 2 else 1)  # so that the filter has work
        on = (loss.loss_layers.tolist(), loss.loss_tokens.tolist())
        collected = (loss.next_layers.tolist(), loss.next_tokens.tolist())
        model.zero_grad()
        total = loss(main)
        total.backward()
        ours = gradients(model)

        logits, streams = every_block(model, x)
        again = nn.functional.cross_entropy(logits, y) * (3e-4 if step % 2 else 1)
        model.zero_grad()
        expected = twin.total(streams[:, on[0]][:, :, on[1]], found, again, 0.5, reduce)
        expected.backward()
        torch.testing.assert_close(total, expected)
        torch.testing.assert_close(ours, gradients(model), atol=1e-6, rtol=1e-4)
        kept_some |= loss.log()["kept"] > 0
        dropped_some |= loss.log()["dropped"] > 0

        pending.append(streams[:, collected[0]][:, :, collected[1]].detach())
        if len(pending) == 3:
            found, pending = twin.clusters(torch.cat(pending).numpy(), 10, 1.5), []
            assert loss.log()["clusters"] == len(found)
            assert loss.log()["members"] == sum(map(len, found))
    assert kept_some and dropped_some


def test_draws_are_runs_of_neighbours_and_the_loss_is_on_the_previous_one():
    model, seen = Stream(), set()
    loss = started(model, layers=2, tokens=3)
    for n, (x, y) in enumerate(batches(45)):
        before = loss.next_layers.tolist(), loss.next_tokens.tolist()
        loss(nn.functional.cross_entropy(model(x), y)).backward()
        for run in (loss.next_layers.tolist(), loss.next_tokens.tolist()):
            assert run == list(range(run[0], run[0] + len(run)))
        if n and n % 3 == 2:
            assert (loss.loss_layers.tolist(), loss.loss_tokens.tolist()) == before
        seen |= {("layer", i) for i in loss.next_layers.tolist()} | {("token", i) for i in loss.next_tokens.tolist()}
    assert len(seen) == DEPTH + TOKENS  # nothing is left out for ever


def test_the_anchor_gets_no_gradient_and_members_between_are_aligned_too():
    f = torch.randn(200, 3, 1, 2)
    f[:, 2, 0, 1] = f[:, 0, 0, 0]  # the cluster skips layer 1 and changes channel
    terms = find_terms(f, bins=10, threshold=0.5, transform="grouped_rank")
    # pairs (0, 1), (0, 2), (1, 2): both later layers follow the anchor's own channel
    assert terms.active.tolist() == [[[True, False]], [[True, False]], [[False, False]]]
    model = Stream()
    loss = started(model, layers=2, tokens=1, every=1, bins=2, threshold=9.0)
    (x, y), (x2, y2) = batches(2)
    loss(nn.functional.cross_entropy(model(x), y))
    first = loss.loss_layers.tolist()[0]
    model.zero_grad()
    main = nn.functional.cross_entropy(model(x2), y2)
    (loss(main) - main).backward()
    moved = [any(p.grad is not None and p.grad.abs().sum() > 0 for p in block.parameters()) for block in model.blocks]
    assert moved[first + 1] and not any(moved[first + 2 :])


def test_dead_and_broken_units_take_no_part():
    f = torch.randn(100, 2, 1, 3)
    f[:, :, 0, 0] = 1.0  # constant: would tie with each other
    f[:, 1, 0, 1] = f[:, 0, 0, 1]
    f[3, 0, 0, 1] = torch.nan
    assert find_terms(f, bins=10, threshold=1.0, transform="grouped_rank").clusters == 0
    f[3, 0, 0, 1] = f[3, 1, 0, 1]
    assert find_terms(f, bins=10, threshold=1.0, transform="grouped_rank").clusters == 1


@pytest.mark.parametrize("transform", ["rank", "raw", "normalised_raw"])
def test_other_transforms_join_by_the_same_rule(transform):
    g = torch.Generator().manual_seed(0)
    f = torch.randn(60, 12, generator=g)
    f[:, 6:] = f[:, :6] * torch.linspace(0.5, 3, 6) + 0.1 * torch.randn(60, 6, generator=g)
    values = {
        "rank": f.argsort(0).argsort(0).float(),
        "raw": f,
        "normalised_raw": (f - f.mean(0)) / f.std(0, correction=0),
    }[transform]
    threshold = {"rank": 4.0, "raw": 0.6, "normalised_raw": 0.3}[transform]
    near = (values[:, :, None] - values[:, None, :]).abs().mean(0) < threshold
    terms = find_terms(f.reshape(60, 2, 1, 6), bins=10, threshold=threshold, transform=transform)
    reach = near.float().matrix_power(12) > 0
    groups = {tuple(row.nonzero()[:, 0].tolist()) for row in reach}
    assert terms.clusters == sum(len(g) > 1 for g in groups) > 0
    assert terms.members == sum(len(g) for g in groups if len(g) > 1)
    root = unit_roots(f, bins=10, threshold=threshold, transform=transform)
    on_device = float_components(clustering._columns(f, transform), threshold * 60, clustering._usable(f))
    assert root.tolist() == on_device.tolist() == [int(row.nonzero()[0]) for row in reach]


@pytest.mark.parametrize("kind", ["independent", "one factor 0.9", "one factor 0.999", "copies", "ties", "all alike"])
def test_the_route_of_a_device_gives_the_same_clusters(kind):
    from vitreous.kernels.near_pairs import near_components
    from vitreous.kernels.ranks import rank_bins

    g = torch.Generator().manual_seed(0)
    x = torch.randn(1500, 150, generator=g)
    if kind.startswith("one factor"):
        rho = float(kind.split()[-1])
        x = rho**0.5 * torch.randn(1500, 1, generator=g) + (1 - rho) ** 0.5 * x
    elif kind == "copies":
        x[:, 50:100] = x[:, :50].exp() + 0.05 * torch.randn(1500, 50, generator=g)
    elif kind == "ties":
        x = torch.randint(3, (1500, 150), generator=g).float()
        x[:, 30:60] = x[:, :30]
        x[:, 0] = torch.where(x[:, 0] == 0, -0.0, x[:, 0])
    elif kind == "all alike":
        x = x[:, :1].repeat(1, 150)
    rows, usable = device_clusters.rank_bins(x, 100)
    assert usable.all()
    assert (rows.numpy() == rank_bins(x.numpy(), 100)).all()
    ours = device_clusters.near_components(rows, 1500.0, 100, torch.ones(150, dtype=torch.bool))
    assert (ours.numpy() == near_components(rows.numpy(), 1500.0)).all()


def test_the_route_of_a_device_leaves_dead_and_broken_units_alone():
    x = torch.randn(50, 6)
    x[:, 1], x[:, 2], x[7, 3], x[9, 4] = 0.0, torch.tensor([0.0, -0.0]).repeat(25), torch.nan, -torch.inf
    assert device_clusters.rank_bins(x, 10)[1].tolist() == [True, False, False, False, False, True]


def test_many_undecided_pairs_are_settled_in_pieces(monkeypatch):
    monkeypatch.setattr(device_clusters, "PAIRS", 7)
    test_the_route_of_a_device_gives_the_same_clusters("one factor 0.999")
    test_the_route_of_a_device_gives_the_same_clusters("copies")


FUSED = """
import torch
from vitreous.kernels import device_clusters, triton_pairs
from vitreous.kernels.near_pairs import near_components

g = torch.Generator().manual_seed(0)
x = torch.randn(600, 70, generator=g)
x[:, 30:50] = x[:, :20].exp() + 0.05 * torch.randn(600, 20, generator=g)  # near, but not by the squared distance alone
x[:, 65:] = 0.999**0.5 * x[:, :1] + 0.001**0.5 * torch.randn(600, 5, generator=g)
triton_pairs.STEP = 256  # three steps a pair, the last one not full
for limit in (0.5, 600.0, 1500.0, 1e9):
    rows, _ = device_clusters.rank_bins(x, 100)
    squared = device_clusters.squared_distances(rows, 100)
    squared[7, :] = squared[:, 7] = triton_pairs.FAR  # a unit that is not to be joined
    ours = triton_pairs.join(rows, squared, limit, 100)
    others = torch.tensor([n for n in range(70) if n != 7])
    expected = torch.arange(70)
    expected[others] = others[torch.from_numpy(near_components(rows[others].numpy(), limit))]
    assert torch.equal(ours, expected), (limit, ours, expected)
    print(limit, len(ours.unique()))
"""


@pytest.mark.slow
def test_the_fused_kernel_joins_the_same_units():
    """By Triton's interpreter, without a GPU."""
    pytest.importorskip("triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", FUSED], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [int(line.split()[1]) for line in done.stdout.splitlines()]
    assert found[0] == 70 > found[1] > found[2] > found[3] == 2


@pytest.mark.parametrize(("bins", "shape"), [(256, (64, 40)), (256, (70, 43)), (2, (64, 33)), (101, (5, 200))])
def test_squared_distances_are_exact_for_every_number_of_bins(bins, shape):
    rows = torch.randint(bins, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    rows[0], rows[1] = 0, bins - 1
    d = rows[:, None].long() - rows[None].long()
    assert torch.equal(device_clusters.squared_distances(rows, bins).long(), d.square().sum(-1))


def test_more_samples_than_32_bits_hold_are_refused():
    assert device_clusters.most_samples(100) == 219_108
    with pytest.raises(ValueError, match="do not fit 32 bits"):
        device_clusters.squared_distances(torch.zeros(1, 40_000, dtype=torch.uint8), 256)


def test_evaluation_and_frozen_passes_leave_no_trace():
    model = Stream()
    loss = started(model)
    (x, y), (x2, _) = batches(2)
    main = nn.functional.cross_entropy(model(x), y)
    model.eval()
    model(x2)
    with torch.no_grad():
        model.train()(x2)
    assert torch.equal(loss(main), main)
    with pytest.raises(vt.SettingsError, match="no forward pass has been seen"):
        loss(main)
    loss.remove()
    assert not any(block._forward_hooks for block in model.blocks)


def run(model: nn.Module, loss: vt.StructureLoss, data: list, start: int = 0) -> list[float]:
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    curve = []
    for x, y in data[start:]:
        total = loss(nn.functional.cross_entropy(model(x), y))
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        curve.append(float(total.detach()))
    return curve


def test_a_checkpoint_in_the_middle_of_a_draw_goes_on_as_if_nothing_had_happened(tmp_path):
    data = batches(17)
    whole = Stream()
    expected = run(whole, structured(whole), data)
    model = Stream()
    loss = structured(model)
    first = run(model, loss, data[:8])
    torch.save({"model": model.state_dict(), "loss": loss.state_dict()}, tmp_path / "checkpoint.pt")
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    fresh = Stream(seed=5)
    again = structured(fresh, seed=99)
    fresh.load_state_dict(saved["model"])
    again.load_state_dict(saved["loss"])
    assert first + run(fresh, again, data, start=8) == expected


def test_draws_written_in_place_give_the_same_curve():
    """As a recorded step does it: the loss stays on the draw that was clustered, not on the one being collected."""
    curves = []
    for in_place in (False, True):
        model = Stream()
        loss = started(model, layers=2, tokens=2)
        loss.in_place = in_place
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        curves.append([])
        for x, y in batches(20):
            total = loss.total(nn.functional.cross_entropy(model(x), y))
            optimiser.zero_grad()
            total.backward()
            optimiser.step()
            loss.advance()
            curves[-1].append(float(total.detach()))
    assert curves[0] == curves[1]


def test_a_checkpoint_is_not_mixed_up_with_a_draw_that_has_begun():
    """The first draw is the one collected and the one of the loss, in tensors of their own."""
    model, other = Stream(), Stream()
    loss, fresh = started(model, layers=2), started(other, layers=2, seed=7)
    run(model, loss, batches(20))
    fresh.load_state_dict(loss.state_dict())
    assert loss.loss_layers.tolist() != loss.next_layers.tolist()
    assert fresh.loss_layers.tolist() == loss.loss_layers.tolist()
    assert fresh.next_layers.tolist() == loss.next_layers.tolist()


def test_accumulated_steps_collect_as_many_samples_as_whole_ones():
    model = Stream()
    loss = started(model, every=2, accumulate=3)
    for n, (x, y) in enumerate(batches(6)):
        loss(nn.functional.cross_entropy(model(x), y)).backward()
        assert ("clusters" in loss.log()) == (n == 5)


def test_autocast_keeps_the_terms_in_single_precision():
    model = Stream()
    loss = started(model)
    with torch.autocast("cpu", torch.bfloat16):
        for x, y in batches(4):
            total = loss(nn.functional.cross_entropy(model(x), y))
    assert loss.log()["terms"] > 0 and total.dtype == torch.float32
    total.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_a_scaled_step_has_the_gradients_of_a_plain_one_and_an_overflow_is_survived():
    """As in a loop with half precision: the scaler multiplies the total, and skips a step that overflows."""
    found = []
    for scale in (1.0, 2.0**12, torch.finfo(torch.float32).max):
        model = Stream()
        loss = started(model, gamma=0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        optimiser = torch.optim.SGD(model.parameters(), 0.1)
        for x, y in batches(8):
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                main = nn.functional.cross_entropy(model(10 * x), y)
            scaler.scale(loss(main)).backward()
            scaler.step(optimiser)
            scaler.update()
        assert loss.log()["kept"] > 0 and all(torch.isfinite(p).all() for p in model.parameters())
        found.append([p.detach().clone() for p in model.parameters()])
        skipped = scaler.get_scale() < scale
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-3)
    assert skipped, "the last scale overflows"


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_accumulated_gradients_are_the_mean_of_those_of_the_formula(reduce):
    """`accumulate` calls make up a step: totals are divided by it, and each call is filtered by its own main loss.

    The sum is that over the batch of the step, so in the mean over three calls each counts three times.
    """
    model, data = Stream(), batches(8)
    loss = started(model, every=1, accumulate=3, layers=3, tokens=2, gamma=0.5, reduce=reduce)
    for x, y in data[:3]:  # the draw that is clustered; its loss is still on none
        loss(nn.functional.cross_entropy(model(x), y))
    found = loss.active.clone()
    collected = torch.cat([every_block(model, x)[1] for x, _ in data[:3]]).detach()
    on = (loss.loss_layers.tolist(), loss.loss_tokens.tolist())
    clusters = twin.clusters(collected[:, on[0]][:, :, on[1]].numpy(), 10, 1.5)
    assert found.any() and loss.log()["clusters"] == len(clusters)
    model.zero_grad()
    for x, y in data[3:6]:
        assert torch.equal(loss.active, found)
        (loss(nn.functional.cross_entropy(model(x), y)) / 3).backward()
    ours = gradients(model)
    model.zero_grad()
    totals = []
    for x, y in data[3:6]:
        logits, streams = every_block(model, x)
        some = streams[:, on[0]][:, :, on[1]]
        gamma = 3 * 0.5 if reduce == "sum" else 0.5
        totals.append(twin.total(some, clusters, nn.functional.cross_entropy(logits, y), gamma, reduce))
    torch.stack(totals).mean().backward()
    torch.testing.assert_close(ours, gradients(model), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("reduce", ["mean", "sum"])
def test_a_step_in_parts_is_the_step_in_one_where_nothing_is_dropped(reduce):
    first, (x, y) = batches(2, size=48)
    steps = []
    for parts in (1, 4):
        model = Stream()
        loss = started(model, every=1, accumulate=parts, gamma=0.5, reduce=reduce)
        for a, b in zip(first[0].chunk(parts), first[1].chunk(parts), strict=True):
            loss(nn.functional.cross_entropy(model(a), b))
        model.zero_grad()
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (loss(nn.functional.cross_entropy(model(a), b)) / parts).backward()
            assert loss.log()["kept"] == loss.log()["terms"] > 0
        steps.append(gradients(model))
    torch.testing.assert_close(*steps, atol=1e-6, rtol=1e-4)


def spoiled(loss: vt.StructureLoss, value: float) -> None:
    """An infinite channel in a layer that is aligned, as after an overflow in half precision."""
    layer = loss._loss_layers[1]
    seen = loss._seen[layer]
    of_the_loss = torch.arange(seen.shape[1])[:, None] < loss.tokens
    loss._seen[layer] = seen + torch.where(of_the_loss & (torch.arange(WIDTH) == 0), value, 0.0)


@pytest.mark.parametrize("value", [torch.inf, torch.nan, 1e30])
def test_what_is_not_finite_is_dropped_and_leaves_no_trace_in_the_gradient(value):
    model = Stream()
    loss = started(model)
    run(model, loss, batches(4))
    (x, y) = batches(1)[0]
    main = nn.functional.cross_entropy(model(x), y)
    spoiled(loss, value)
    model.zero_grad()
    total = loss(main)
    total.backward()
    assert torch.isfinite(total) and loss.log()["dropped"] >= 2 and loss.log()["kept"] > 0
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


class Checkpointed(Stream):
    again = False  # use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.again)
        return self.head(x.mean(1))


def test_activation_checkpointing_gives_the_same_curve():
    """Blocks run again in the backward pass, when the next draw has been made."""
    data, plain, model = batches(14), Stream(), Checkpointed()
    loss = structured(model)
    assert run(model, loss, data) == run(plain, structured(plain), data)
    assert not loss._seen


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpointing_is_refused_with_the_way_out():
    model = Checkpointed()
    model.again = True
    loss = structured(model)
    with pytest.raises(vt.SettingsError, match=r"(?s)no forward pass has been seen.*use_reentrant=False"):
        run(model, loss, batches(1))


class Overwriting(nn.Module):
    """The same block, which writes into its input."""

    def __init__(self, block: Mixer) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        x += self.block(y) - y
        return x


@pytest.mark.parametrize("tokens", [2, TOKENS])
def test_blocks_may_write_into_their_input(tokens):
    curves = []
    for kind in (Stream, Overwriting):
        model = Stream()
        if kind is Overwriting:
            model.blocks = nn.Sequential(*map(Overwriting, model.blocks))
        data = [(x.clone(), y) for x, y in batches(14)]
        curves.append(run(model, structured(model, tokens=tokens), data))
    assert curves[0] == pytest.approx(curves[1], abs=1e-5)


def test_copies_of_the_model_are_not_watched(tmp_path):
    model = Stream()
    loss = structured(model)
    run(model, loss, batches(4))
    torch.save(model, tmp_path / "model.pt")
    saved = torch.load(tmp_path / "model.pt", weights_only=False)
    for other in (copy.deepcopy(model), saved):
        other.train()(batches(1)[0][0]).sum().backward()
        assert not loss._seen
    run(model, loss, batches(4))
    shallow = copy.copy(model.blocks[loss._loss_layers[0]])  # as DataParallel makes its replicas
    shallow(batches(1)[0][0])
    assert not loss._seen
    with pytest.raises(vt.SettingsError, match=r"(?s)DataParallel.*torchrun"):
        structured(nn.DataParallel(model))


def test_two_losses_on_one_model_each_see_all_of_it():
    data = batches(14)
    model, other = Stream(), Stream()
    first, second = structured(model, gamma=0.0), structured(model, seed=3, layers=2)
    alone = structured(other, seed=3, layers=2)
    assert run(model, lambda main: second(first(main)), data) == run(other, alone, data)
    assert first.log()["terms"] > 0


def test_a_model_may_change_its_precision_on_the_way():
    model = Stream()
    loss = structured(model)
    run(model, loss, batches(5))
    model.bfloat16()
    curve = run(model, loss, [(x.bfloat16(), y) for x, y in batches(5)])
    assert all(value == value for value in curve) and loss.log()["terms"] > 0


class Words(nn.Module):
    """A stream whose blocks take any number of tokens, and give tuples as many libraries do."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + 0.02 * block(x)[0] if isinstance(block, Tupled) else x + 0.02 * block(x)
        return x.mean((1, 2))


class Tupled(nn.Module):
    def __init__(self, inner: nn.Module, kind: type = tuple) -> None:
        super().__init__()
        self.inner, self.kind = inner, kind

    def forward(self, x: torch.Tensor) -> object:
        return self.kind([self.inner(x), None]) if self.kind is tuple else {"x": x}


def words(kind: type | None = None) -> Words:
    model = Words()
    if kind is not None:
        model.blocks = nn.ModuleList(Tupled(block, kind) for block in model.blocks)
    return model


def read(model: nn.Module, loss: vt.StructureLoss, lengths: list[int]) -> list[float]:
    g = torch.Generator().manual_seed(0)
    curve = []
    for length in lengths:
        total = loss(model(torch.randn(24, length, WIDTH, generator=g)).square().mean())
        total.backward()
        curve.append(float(total.detach()))
    return curve


TEXT = {"layers": 2, "tokens": 2, "every": 3, "bins": 10, "threshold": 2.0, "gamma": 1.0}
LAYERS = ["blocks.0", "blocks.1", "blocks.2"]


def test_blocks_may_give_tuples_and_nothing_stranger():
    data = [5] * 9
    plain, tupled = words(), words(tuple)
    expected = read(plain, vt.StructureLoss(plain, blocks=LAYERS, **TEXT), data)
    assert read(tupled, vt.StructureLoss(tupled, blocks=LAYERS, **TEXT), data) == expected
    strange = words(dict)
    loss = vt.StructureLoss(strange, blocks=LAYERS, **TEXT)
    with pytest.raises(vt.SettingsError, match=r"(?s)a tuple that begins with one.*dict"):
        strange.blocks[0](torch.zeros(2, 5, WIDTH))
    assert loss.depth == 3


def test_a_model_of_no_known_family_is_told_to_name_its_blocks():
    with pytest.raises(vt.ModelError, match=r"(?s)of no known family\n.*StructureLoss\(model, blocks=\[") as refused:
        vt.StructureLoss(words())
    assert "family=" not in str(refused.value)


def test_batches_that_are_shorter_than_a_draw_are_left_out():
    model = words()
    loss = vt.StructureLoss(model, blocks=LAYERS, **TEXT)
    read(model, loss, [40, 40, 40, 40])
    loss.loss_tokens, loss.next_tokens, loss._reach = torch.tensor([30, 31]), torch.tensor([20, 21]), [32, 22]
    loss.active = torch.ones_like(loss.active)
    read(model, loss, [25])  # long enough for what is collected, not for the loss
    assert loss.log()["kept"] == 0 and loss._collected.rows == 24
    read(model, loss, [3])
    assert loss.log()["kept"] == 0 and loss._collected.rows == 24
    read(model, loss, [40])  # the next draw is among the tokens that all batches had
    assert loss.next_tokens.max() < 3 and loss.loss_tokens.tolist() == [20, 21]
    read(model, loss, [7, 1, 4, 9, 5, 2, 8, 6, 3])
    assert loss.log()["clusters"] >= 0 and loss.next_tokens.max() < 6


def test_a_period_of_short_batches_only_is_survived():
    model = words()
    loss = vt.StructureLoss(model, blocks=LAYERS, **TEXT)
    read(model, loss, [60] * 4)
    loss.next_tokens, loss._reach[1] = torch.tensor([50, 51]), 52
    read(model, loss, [4] * 3)
    assert not loss.active.any() and loss.next_tokens.max() < 4
    read(model, loss, [4] * 6)
    assert loss._left_out == 0


def test_a_checkpoint_with_more_steps_than_are_collected_now_still_clusters():
    model = Stream()
    loss = structured(model, every=9)
    run(model, loss, batches(8))
    model = Stream()
    eager = structured(model, every=3)
    eager.load_state_dict(loss.state_dict())
    run(model, eager, batches(1))
    assert "clusters" in eager.log()


@pytest.mark.slow
def test_a_compiled_model_gives_the_same_curve_without_compiling_again():
    data = batches(14)
    plain, model = Stream(), Stream()
    expected = run(plain, structured(plain), data)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True)
    loss = structured(compiled)
    before = run(compiled, loss, data[:4])
    with torch._dynamo.config.patch(error_on_recompile=True):
        after = run(compiled, loss, data[4:])
    assert before + after == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("first", [0, 2, 3])
def test_the_gradient_of_picked_tokens_is_the_same_compiled(first):
    stream = torch.randn(4, TOKENS, WIDTH, requires_grad=True)
    weights = torch.randn(4, TOKENS, WIDTH), torch.randn(4, 5, WIDTH)
    places, more = torch.arange(first, first + 3), torch.tensor([1, 2])

    def both(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        whole, some = Pick.apply(x, places, more)
        return (whole * weights[0]).sum() + (some * weights[1]).square().sum()

    expected = weights[0].clone()
    expected[:, first : first + 3] += 2 * (stream.detach()[:, first : first + 3] * weights[1][:, :3] ** 2)
    programs: list[str] = []

    def noted(program: torch.fx.GraphModule, _inputs: object) -> object:
        programs.append(program.code)
        return make_boxed_func(program.forward)

    torch._dynamo.reset()
    compiled = torch.compile(both, backend=aot_autograd(fw_compiler=noted), fullgraph=True)
    for run_ in (both, compiled):
        (gradient,) = torch.autograd.grad(run_(stream, places), stream)
        assert torch.allclose(gradient, expected, rtol=1e-6, atol=1e-6)
    assert len(programs) == 2 and "index_add" not in programs[1] and "index_put" not in programs[1]


@pytest.mark.slow
def test_the_whole_loss_compiles_into_one_program():
    """What a recorded step does: `total` inside, `advance` outside."""
    data, plain, model = batches(14), Stream(), Stream()
    expected = run(plain, started(plain), data)
    loss = started(model)
    torch._dynamo.reset()
    both = torch.compile(lambda x, y: loss.total(nn.functional.cross_entropy(model(x), y)), fullgraph=True)
    optimiser, curve = torch.optim.SGD(model.parameters(), 0.1), []
    for x, y in data:
        total = both(x, y)
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        loss.advance()
        curve.append(float(total.detach()))
    assert curve == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_a_loss_that_comes_after_the_compiler_says_so():
    model = Stream()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager")
    (x, y) = batches(1)[0]
    compiled(x)
    loss = structured(compiled)
    with pytest.raises(vt.SettingsError, match=r"(?s)no forward pass.*before a compiled model first runs"):
        loss(nn.functional.cross_entropy(compiled(x), y))


TIGHT = {"threshold": 0.1, "gamma": 0.5}  # units are joined or not depending on which samples are seen


def weak(loss: vt.StructureLoss, notes: list) -> Callable[[torch.Tensor], torch.Tensor]:
    """With main losses so small that half of the terms are dropped; what was kept at each step is noted."""

    def total(main: torch.Tensor) -> torch.Tensor:
        found = loss(3e-4 * main)
        notes.append((loss.log().get("kept"), loss.log().get("terms"), loss.active.tolist()))
        return found

    return total


def ranks(rank: int, folder: str, data: list) -> None:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model = DistributedDataParallel(Stream())
    share = [(x[rank::2], y[rank::2]) for x, y in data]
    notes: list = []
    run(model, weak(structured(model, **TIGHT), notes), share)
    torch.save({"model": model.module.state_dict(), "notes": notes}, Path(folder) / f"rank{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(os.name == "nt", reason="gloo over a file")
def test_two_ranks_train_as_one_with_both_batches(tmp_path):
    data = batches(10)
    # samples of the ranks are gathered rank by rank: the single run sees them in that order, for ties
    ordered = [(torch.cat([x[0::2], x[1::2]]), torch.cat([y[0::2], y[1::2]])) for x, y in data]
    one, notes, alone = Stream(), [], []
    run(one, weak(structured(one, **TIGHT), notes), ordered)
    half = Stream()
    run(half, weak(structured(half, **TIGHT), alone), [(x[0::2], y[0::2]) for x, y in data])
    assert 0 < notes[-1][0] < notes[-1][1], "some terms are kept and some are not"
    assert alone[-1] != notes[-1], "half of the samples would not do"
    torch.multiprocessing.spawn(ranks, (str(tmp_path), data), nprocs=2)
    for rank in range(2):
        saved = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        assert saved["notes"] == notes, "the same clusters, and the same terms kept, at every step"
        for name, value in one.state_dict().items():
            torch.testing.assert_close(saved["model"][name], value, atol=1e-5, rtol=1e-4)


def test_any_family_works_and_a_subject_too():
    import timm

    module = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=3, embed_dim=24, num_heads=2)
    for target in (copy.deepcopy(module), vt.wrap(copy.deepcopy(module))):
        loss = vt.StructureLoss(target, layers=2, tokens=2, every=1, bins=4)
        model = (target.module if isinstance(target, vt.Subject) else target).train()
        for _ in range(3):
            loss(model(torch.randn(8, 3, 32, 32)).square().mean()).backward()
        assert loss.depth == 3 and "clusters" in loss.log()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"layers": 1}, "aligned between layers"),
        ({"layers": 9}, r"more layers asked for than the model has\n  given:    9\n  accepted: 2 to 5"),
        ({"blocks": BLOCKS[:1]}, r"(?s)more layers asked for than the model has.*a model with two blocks or more"),
        ({"tokens": 0}, "tokens is a count"),
        ({"every": 0}, "every is a count"),
        ({"bins": 300}, "bins out of range"),
        ({"threshold": 0.0}, "positive"),
        ({"gamma": -1.0}, "positive"),
        ({"reduce": "median"}, "unknown reduce"),
        ({"transform": "log"}, "unknown transform"),
        ({"blocks": ["blocks.7"]}, "no such module"),
        ({"layers": "3"}, r"layers is a whole number\n  given:    '3'"),
        ({"tokens": 2.5}, "tokens is a whole number"),
        ({"threshold": "1"}, "threshold is a number"),
        ({"threshold": float("inf")}, "positive"),
        ({"gamma": True}, r"gamma is a number\n  given:    True"),
        ({"tokens": True}, "tokens is a whole number"),
        ({"every": None}, "every is a whole number"),
        ({"seed": "0"}, r"seed is a whole number\n  given:    '0'"),
        ({"blocks": "blocks"}, r"blocks are paths of modules\n  given:    'blocks'"),
        ({"blocks": 3}, "blocks are paths of modules"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, words):
    with pytest.raises(vt.SettingsError, match=words):
        structured(Stream(), **settings)


@pytest.mark.parametrize("model", [None, "vit_tiny_patch16_224", 3])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(vt.SettingsError, match="the model is a torch module or a subject"):
        vt.StructureLoss(model)


def test_what_the_first_batch_shows_to_be_wrong_is_refused():
    model = Stream()
    with pytest.raises(vt.SettingsError, match="fewer tokens"):
        started(model, tokens=TOKENS + 1)
    with pytest.raises(vt.SettingsError, match=r"(?s)\(sample, token, channel\).*\(2, 8\)"):
        model = Stream()
        structured(model, blocks=[f"blocks.{n}.along" for n in range(DEPTH)])
        model.blocks[0].along(torch.zeros(2, WIDTH))
    model = Stream()
    loss = structured(model)
    with pytest.raises(vt.SettingsError, match=r"(?s)main loss is a tensor.*float"):
        loss(0.5)
    with pytest.raises(vt.SettingsError, match=r"(?s)one number, the mean over the batch.*\(24,\)"):
        loss(nn.functional.cross_entropy(model(batches(1)[0][0]), batches(1)[0][1], reduction="none"))
    model = Stream()
    loss = started(model)
    model.blocks[1].eval()  # frozen, as in fine-tuning
    with pytest.raises(vt.SettingsError, match=r"(?s)have not run in training mode.*blocks \[1\]"):
        run(model, loss, batches(20))
    model = Stream()
    loss = structured(model, blocks=["blocks.0", "blocks.1.across", "blocks.2"])
    with pytest.raises(vt.SettingsError, match="equally wide"):
        loss(model(batches(1)[0][0]).mean())
    model = Stream()
    loss = started(model, every=1, bins=100)
    with pytest.raises(vt.SettingsError, match="fewer samples than bins"):
        loss(nn.functional.cross_entropy(model(batches(1)[0][0]), batches(1)[0][1]))

"""Top eigenvectors of a normalized affinity matrix D^-1/2 A D^-1/2, A = f(cos) over nodes (AlignedCut, eq. 3).

Three routes. `exact_cut` fills the matrix. `low_rank_cut` never does: a smooth kernel over unit vectors has quickly
falling eigenvalues, so A ≈ Φ Φᵀ with Φ = f(cos(node, landmark)) V Λ^-1/2 from the eigenvectors of the landmarks' own
matrix; degrees are Φ (Φᵀ 1), all nodes count, and what is left is an eigenproblem as small as the rank. `paper_cut` is
the paper's: eigenvectors of a sampled graph, carried to every other node by its nearest sampled ones (eq. 4).

Nodes come in pieces, as often as they are asked for, so that they need not fit in memory. Rows may have any length:
only their directions count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Affinity = Callable[[Tensor], Tensor]  # cosines -> affinities, element by element; may overwrite the cosines
Pieces = Callable[[], Iterator[Tensor]]  # (node, channel), in one order

SOLVED_DENSE = 1500  # nodes up to which all eigenvectors are computed
NEGLIGIBLE = 1e-7  # of the largest eigenvalue of the landmarks: rounding, not signal
NEGATIVE = 1e-2  # share of negative eigenvalues above which a function of cosines is no kernel
SMALL_DOT = 1e-3  # what directions that are left out may add to a cosine, root mean square
STEP = 2048  # nodes at a time on a CPU: what belongs to them stays in its cache


class NoKernelError(ArithmeticError):
    """A function of cosines whose matrices have large negative eigenvalues."""


def exp_cos(cosines: Tensor) -> Tensor:
    """exp(cos - 1): the paper's affinity."""
    return cosines.sub_(1).exp_()


def unit_rows(rows: Tensor) -> Tensor:
    """float32 (node, channel) of length one. A zero row stays zero: its cosine with anything is 0."""
    rows = rows.float()
    return rows * _per_length(rows)


def _per_length(rows: Tensor) -> Tensor:
    """(node, 1): one over the length of each row."""
    return torch.linalg.vector_norm(rows, dim=1, keepdim=True).clamp_min_(1e-20).reciprocal_()


@dataclass(frozen=True, eq=False)
class Placer:
    """Carries rows (node, channel) to (node, eigenvector) by their affinity to landmarks, a = f(cos): a M / √(a d).

    `landmarks` (landmark, channel), `mix` M (landmark, eigenvector), `degrees` d (landmark,).
    """

    landmarks: Tensor
    mix: Tensor
    degrees: Tensor
    affinity: Affinity = exp_cos

    def __call__(self, new: Tensor) -> Tensor:
        a = self.affinity(unit_rows(new).double() @ self.landmarks.double().t())
        degree = (a @ self.degrees).clamp_min(torch.finfo(torch.float64).tiny)
        return (a @ self.mix * degree.rsqrt()[:, None]).float()


@dataclass(frozen=True, eq=False)
class Cut:
    """`vectors` (node, eigenvector) of unit length, largest eigenvalue first; `values`; `place` carries new rows
    (node, channel) to (node, eigenvector)."""

    vectors: Tensor
    values: Tensor
    place: Callable[[Tensor], Tensor]


def top_eigenvectors(matrix: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Values, largest first, and vectors of a symmetric matrix, with signs that do not depend on the solver."""
    if len(matrix) <= SOLVED_DENSE or count * 4 > len(matrix):
        values, vectors = torch.linalg.eigh(matrix)
        values, vectors = values.flip(0)[:count], vectors.flip(1)[:, :count]
    else:
        import numpy as np
        from scipy.sparse.linalg import LinearOperator, eigsh

        def product(vector: np.ndarray) -> np.ndarray:
            return (matrix @ torch.from_numpy(vector.reshape(-1)).to(matrix)).cpu().numpy()

        start = np.ones(len(matrix))
        operator = LinearOperator(matrix.shape, matvec=product, dtype=start.dtype)  # wherever the matrix is
        found, columns = eigsh(operator, k=count, which="LA", v0=start)
        values = torch.from_numpy(found[::-1].copy()).to(matrix)
        vectors = torch.from_numpy(columns[:, ::-1].copy()).to(matrix)
    return values, vectors * signs(vectors)


def signs(vectors: Tensor) -> Tensor:
    """(eigenvector,): what makes the largest entry of each positive."""
    strongest = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))[0]
    return torch.where(strongest < 0, -1.0, 1.0).to(vectors.dtype)


def exact_cut(rows: Tensor, count: int, affinity: Affinity = exp_cos) -> Cut:
    """Eq. 3 for all pairs of rows, in memory of two such matrices."""
    rows = unit_rows(rows).double()
    matrix = affinity(rows @ rows.t())
    scale = matrix.sum(1).rsqrt()
    matrix *= scale[:, None]
    matrix *= scale[None, :]
    values, vectors = top_eigenvectors(matrix, count)
    # (1/λ) Σ_j a_j x_j / √(d d_j), which for a node of the graph is its own row
    weighted = scale[:, None] * vectors / values.clamp_min(torch.finfo(torch.float64).tiny)
    return Cut(vectors.float(), values, Placer(rows, weighted, torch.ones_like(scale), affinity))


def low_rank_cut(pieces: Pieces, landmarks: Tensor, count: int, rank: int, affinity: Affinity = exp_cos) -> Cut:
    """Eq. 3 with A ≈ Φ Φᵀ; `landmarks` (landmark, channel) are unit rows, drawn among the nodes. Reads the nodes once.

    Memory: rank + eigenvectors numbers a node. A function of cosines that is no kernel raises NoKernelError.
    """
    to_rank, half = _features_of(landmarks, rank, affinity)
    phi = [to_rank(piece) for piece in pieces()]
    nodes = sum(map(len, phi))
    total = torch.stack([part.sum(0, dtype=torch.float64) for part in phi]).sum(0).to(landmarks.dtype)

    def weigh(features: Tensor) -> Tensor:
        """D^-1/2 Φ, in place. What rounding leaves of a degree is still larger than nothing."""
        return features.mul_((features @ total).clamp_min_(1e-12 * nodes).rsqrt_()[:, None])

    gram = total.new_zeros(len(total), len(total), dtype=torch.float64)
    for part in phi:
        gram += weigh(part).t() @ part
    values, mix = top_eigenvectors(gram, count)
    turn = (mix / values.clamp_min(torch.finfo(torch.float64).tiny).sqrt()).to(landmarks.dtype)
    vectors = torch.cat([part @ turn for part in phi])
    flip = signs(vectors)
    place = Placer(landmarks, half @ (turn * flip).double(), half @ total.double(), affinity)
    return Cut(vectors.mul_(flip), values, place)


def _features_of(landmarks: Tensor, rank: int, affinity: Affinity) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Rows -> Φ (node, rank), whose products are affinities; and what makes Φ of affinities to the landmarks."""
    matrix = affinity((landmarks @ landmarks.t()).double().clamp(-1, 1))
    values, vectors = torch.linalg.eigh(matrix)
    if float(-values.clamp_max(0).sum()) > NEGATIVE * float(values.abs().sum()):
        raise NoKernelError
    kept = values > NEGLIGIBLE * values[-1]
    kept[: max(0, len(values) - rank)] = False
    exact = vectors[:, kept] / values[kept].sqrt()
    half = exact.to(landmarks.dtype)
    few = _few_directions(landmarks)
    turns = [landmarks.t()] if few is None else [few, (landmarks @ few).t()]
    return lambda rows: _through(rows, [turn.contiguous() for turn in turns], affinity, half), exact


def _through(rows: Tensor, turns: list[Tensor], affinity: Affinity, half: Tensor) -> Tensor:
    """affinity(unit rows · turns) · half, a few rows at a time and into the same memory: making room anew for every
    piece takes as long as the products."""
    step = STEP if rows.device.type == "cpu" else max(1, len(rows))
    found = rows.new_empty(len(rows), half.shape[1])
    room = [rows.new_empty(min(step, len(rows)), turn.shape[1]) for turn in turns]
    for start in range(0, len(rows), step):
        given = part = rows[start : start + step]
        for n, (turn, place) in enumerate(zip(turns, room, strict=True)):
            part = torch.mm(part, turn, out=place[: len(part)])
            if n == 0:
                part *= _per_length(given)
        torch.mm(affinity(part), half, out=found[start : start + step])
    return found


def _few_directions(landmarks: Tensor) -> Tensor | None:
    """(channel, direction): so few that going through them is cheaper, and enough for cosines; None if there are not.

    The landmarks are halved: directions from one half, what they miss on the other.
    """
    fitted, tried = landmarks[::2], landmarks[1::2]
    channels = landmarks.shape[1]
    _, vectors = torch.linalg.eigh((fitted.t() @ fitted).double())
    for share in (8, 6, 4, 3):
        kept = channels // share
        if kept < 16 or kept >= len(fitted):
            continue
        few = vectors[:, -kept:].to(landmarks.dtype)
        left = tried - (tried @ few) @ few.t()
        missed = left @ left.t()
        missed.fill_diagonal_(0)
        if float(missed.square().mean().sqrt()) < SMALL_DOT:
            return few
    return None


def paper_cut(pieces: Pieces, sample: Tensor, count: int, nearest: int, affinity: Affinity = exp_cos) -> Cut:
    """Eigenvectors of the graph of `sample` (node, channel), then eq. 4 for every node; `nearest` is its K."""
    solved = exact_cut(sample, count, affinity)
    sample = unit_rows(sample)
    nearest = min(nearest, len(sample))

    def place(rows: Tensor) -> Tensor:  # eq. 4
        parts = []
        for part in rows.split(4096):
            near, where = _nearest(unit_rows(part) @ sample.t(), nearest, affinity)
            carried = torch.nn.functional.embedding_bag(where, solved.vectors, per_sample_weights=near, mode="sum")
            parts.append(carried / near.sum(1, keepdim=True))
        return torch.cat(parts) if parts else rows.new_zeros(0, count)

    return Cut(torch.cat([place(piece) for piece in pieces()]), solved.values, place)


def _nearest(cosines: Tensor, nearest: int, affinity: Affinity) -> tuple[Tensor, Tensor]:
    """Affinities and places of the nearest; exp(cos - 1) rises with the cosine, so few of them have to be computed."""
    if affinity is not exp_cos:
        found, where = affinity(cosines).topk(nearest, dim=1)
        return found, where
    near, where = cosines.topk(nearest, dim=1)
    return exp_cos(near), where

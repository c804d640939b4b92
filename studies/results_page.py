"""Writes docs/results.md and a page for each paper: its claims, tables and figures beside ours, from results/*.json;
and into the page of each lens which function computes which equation."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import paper_claims as of
from paper_claims import Claim, missing

DOCS = Path(__file__).parents[1] / "docs"
EQUATIONS = "every-equation-and-the-function-that-computes-it"
MADE = "<!-- made by studies/results_page.py: run `make studies`, do not edit -->"


@dataclass(frozen=True)
class Paper:
    lens: str
    title: str
    differs: str
    claims: tuple[Claim, ...]
    figures: tuple[tuple[str, str], ...]  # file in results/, what it shows
    equations: tuple[tuple[str, str, str], ...]  # equation or section, what it is, module:function


STRUCTURE = Paper(
    "structure",
    "Structuring hidden features via clustering of unit-level activation patterns",
    "The spiral is the paper's, with 3,057 of its 3,600 epochs. CIFAR-10 is at 32 pixels for 34 epochs (paper: 256 pixels, 3,600 "
    "epochs), one seed. Terms of the loss are filtered by their mean over a batch, but printed as a sum: *mean* and *sum* are networks trained "
    "with either, *vit* or *plain* is without the loss. The small networks of the ablations have four blocks of width 64 and ten epochs, and several seeds. "
    "ImageNet-1K was not trained.",
    (
        Claim(
            "Table 7, 12",
            "The loss makes groups of alike units larger",
            "1.33 to 1.66 units a group",
            of.spiral_sizes,
            "structure_spiral",
        ),
        Claim(
            "Table 7",
            "Small networks on CIFAR-10: groups are larger too",
            "1.33 to 1.66 units a group, on the spiral",
            of.small_networks(of.SMALL_GROUPS),
            "structure_ablation",
        ),
        Claim("Table 1", "Fewer clusters skip a layer", "8 to 4", of.spiral_inefficient, "structure_spiral"),
        Claim(
            "Table 1",
            "Layers stay equally different with the loss; a plain network grows more alike",
            "plain 167.0 to 149.0, loss 162.3 to 162.9",
            of.spiral_differences,
            "structure_spiral",
        ),
        Claim(
            "Table 1",
            "CIFAR-10 accuracy rises a little",
            "97.49 % to 97.58 %",
            of.cifar_accuracy,
            "structure_cifar",
        ),
        Claim(
            "Table 1",
            "Small networks, ten epochs: accuracy rises a little",
            "97.49 % to 97.58 %",
            of.small_networks(of.SMALL_ACCURACY),
            "structure_ablation",
        ),
        Claim(
            "Table 1, 9",
            "Maps point at the object more often",
            "Point Game 0.613 to 0.703, Energy PG 0.487 to 0.644",
            of.cifar_pointing,
            "structure_cifar",
        ),
        Claim(
            "Table 1, 9",
            "Small networks, animals with true masks: maps point at the object more often",
            "Point Game 0.613 to 0.703, Energy PG 0.487 to 0.644",
            of.small_networks(of.SMALL_POINTING, 3, "pointing"),
            "structure_ablation",
        ),
        Claim(
            "Table 1",
            "ImageNet-1K accuracy rises",
            "larger model, few epochs",
            missing("needs ImageNet-1K and days of several GPUs"),
        ),
        Claim(
            "Table 12",
            "Vision backbones hardly have groups, text encoders do",
            "vision 1.009 and 1.016, text 3.005 and 3.112",
            of.backbones,
            "structure_backbones",
        ),
        Claim(
            "Table 13",
            "Grouped ranks beat ranks",
            "+0.09 % accuracy",
            of.ablation("sum", "rank", "grouped ranks less ranks"),
            "structure_ablation",
        ),
        Claim(
            "Table 13",
            "Raw activations do harm",
            "-5.12 % against the plain network",
            of.ablation("vit", "raw", "plain less raw"),
            "structure_ablation",
        ),
        Claim(
            "Table 15",
            "Threshold 1 beats 0.5",
            "+4.41 %",
            of.ablation("sum", "threshold_half", "threshold 1 less 0.5"),
            "structure_ablation",
        ),
        Claim(
            "Table 13",
            "Clustering on one batch beats the plain network",
            "+0.59 %",
            of.ablation("one_batch", "vit", "one batch less plain"),
            "structure_ablation",
        ),
        Claim(
            "Table 14",
            "Clustering on one batch beats clustering on twenty",
            "+1.33 %",
            of.ablation("one_batch", "sum", "one batch less twenty"),
            "structure_ablation",
        ),
        Claim(
            "Figure 7",
            "Units are used again after layers that differ",
            "shown in a network of 32 layers",
            of.residual_mlp,
            "structure_residual_mlp",
        ),
        Claim("section 3.1", "The loss costs little time", "not stated as a number", of.step_cost),
    ),
    (
        ("structure_spiral_sizes.png", "Figure 5: sizes of groups, plain and with the loss read both ways"),
        ("structure_spiral_units_mean.png", "Figure 1: six units over the layers, with the loss read as a mean"),
        ("structure_cifar_maps.png", "Figure 3: class maps of the plain network and the one with the loss"),
        ("structure_residual_mlp.png", "Figure 7: units of a residual network that come back"),
    ),
    (
        ("3.1", "a run of neighbouring layers and tokens is drawn", "training.clustering:window"),
        ("3.3", "ordinal ranks over samples, put into β bins", "kernels.ranks:rank_bins"),
        ("3.3", "grouped ranks F̂ of features", "lenses.structure:grouped_ranks"),
        ("3.3", "L1 distances M, of all pairs", "kernels.l1:distances"),
        ("3.3", "threshold τB and connected components, without filling M", "kernels.near_pairs:near_components"),
        ("3.3", "clusters C of any features", "lenses.structure:unit_clusters"),
        ("3.4", "anchors and the layers they align", "training.clustering:layer_pairs"),
        ("3.4, 3.5", "structure loss, filter and weighting in training", "training.structure_loss:StructureLoss"),
        ("4.2", "differences, counts, inefficient clusters, largest", "lenses.structure_finding:StructureFinding"),
        ("4.3", "Grad-CAM++", "baselines.gradcam:gradcam"),
        ("4.3", "Point Game", "evidence.pointing:point_game"),
        ("4.3", "Energy PG", "evidence.pointing:energy_point_game"),
        ("C", "tests of sizes and of layers", "lenses.structure_comparison:compare"),
        ("D.1", "concept vectors by layer", "baselines.tcav:tcav"),
    ),
)

DISENTANGLE = Paper(
    "disentangle",
    "Interpretability without tradeoffs (ELUDe)",
    "Models of 9.5 and 22 million weights in place of ViT-B, one or two thousand pictures in place of 1.28 million, dictionaries "
    "trained for 200 to 780 steps in place of 125,000: they are far from what they could be. Table 2 has three draws of tokens and the sweep of section E.1, at "
    "five epochs in place of fifty. Expansion 4 in place of 8. The judge is another model's embedding, not three vision-language "
    "models.",
    (
        Claim(
            "Table 2",
            "Splitting loses nothing, dictionaries do",
            "R² 100 against 48 to 99.99",
            of.faithful,
            "disentangle_tables",
        ),
        Claim(
            "Table 2",
            "Sub-units are about one thing more often than units and dictionaries (MS-Score, own space)",
            "71.05 against 36.42 of units, 59.15 of the best dictionary (ViT-B/16)",
            of.scores_above("ms"),
            "disentangle_tables",
        ),
        Claim(
            "Table 2",
            "The same in a space that the layer has no part in",
            "not in the paper",
            of.scores_above("ms_other"),
            "disentangle_tables",
        ),
        Claim(
            "Table 2, 3", "Judges rank sub-units first", "rank 1 of 10 on both backbones", of.rank, "disentangle_tables"
        ),
        Claim(
            "Table 4",
            "Sub-units are more stable over random starts than dictionaries",
            "93.3 against 86.9",
            of.stable,
            "disentangle_tables",
        ),
        Claim(
            "Table 5",
            "A split model is no slower than one with a dictionary, and needs less memory",
            "437.73 ms against 417.18 to 437.43 of SAEs, 577 MB against 5,665 and more",
            of.as_fast,
        ),
        Claim(
            "Table 7",
            "Leaf clusters are better than EOM, and both than no split",
            "62.7 against 60.1",
            of.table7,
            "disentangle_tables",
        ),
        Claim(
            "Figure 5", "Sub-units of a concept steer what the model says", "captions of LLaVA-OneVision", of.steering
        ),
        Claim(
            "outlook",
            "Language models can be split the same way",
            "left open",
            of.language_units,
            "disentangle_language",
        ),
    ),
    (
        ("disentangle_tin.png", "Figure 2: interpretability against faithfulness, tin-vit-text"),
        ("disentangle_dino.png", "Figure 2 for dinov2s_saliency"),
        ("disentangle_pictures_tin.png", "Figures 11 to 17: units and the sub-units they split into"),
        ("disentangle_pictures_dino.png", "Figures 11 to 17 for dinov2s_saliency"),
        ("disentangle_steering.png", "Figure 5 in small: a concept suppressed and amplified"),
    ),
    (
        ("1", "the strongest k instances of a unit", "kernels.stream_top:stream_top"),
        ("3.2", "contributions clustered by density", "kernels.density:contribution_clusters"),
        ("2", "representatives, weighted by membership", "lenses.disentangle_units:divided"),
        ("3", "the set of sub-units that wins an input by margin ρ", "kernels.split_weights:winners"),
        ("4", "shares of a weight", "kernels.split_weights:shares"),
        ("5, 6", "weights that sum back, bit for bit", "kernels.split_weights:divide"),
        ("3.3", "search for ρ", "kernels.split_weights:search_rho"),
        ("7", "MS-Score without the sum over pairs", "evidence.monosemanticity:monosemanticity"),
        ("8", "the two-stage form of a layer", "subunits.materialised:materialise"),
        ("B.1", "LLM Rank over any chat endpoint", "judges.llm_rank:llm_rank"),
        ("B.3", "stability, effective rank, coherence", "evidence.stability:stability"),
        ("C.3", "steering by α, γ, κ, ν", "steering:steer"),
        ("9", "choice of a dictionary's settings", "dictionary_comparison.compare:compare_dictionaries"),
    ),
)

ALIGN = Paper(
    "align",
    "AlignedCut: visual concepts discovery on brain-guided universal feature space",
    "Macaque V4 (50 neurons, 640 pictures; 89 neurons, 1,200 pictures) in place of human fMRI (Natural Scenes), four small networks of 64 and 112 pixels in place of "
    "CLIP, DINOv2 and MAE of ViT-B size, six layers of each, hundreds of pictures in place of ten thousand.",
    (
        Claim(
            "Table 1", "The aligned sum of all layers predicts the brain", "R² 0.188 to 0.196", of.brain, "align_brain"
        ),
        Claim(
            "Table 1",
            "The eigen-constraint improves the prediction",
            "0.188 without, 0.193 and 0.196 with",
            of.constraint,
            "align_brain",
        ),
        Claim(
            "Figure 5",
            "Alignment costs segmentation, and the constraint gives part of it back",
            "curves over layers",
            of.kept_segments,
            "align_segments",
        ),
        Claim(
            "Figure 3", "Channels of different networks become alike", "cosines rise plainly", of.alike, "align_brain"
        ),
        Claim(
            "Figure 4", "One colour, one concept, in all networks", "shown in pictures", of.one_colour, "align_mixing"
        ),
        Claim(
            "Figures 9, 10", "Figure and ground part at one layer", "CLIP, layers 4 to 5", of.paths, "align_pictures"
        ),
        Claim(
            "Figure 11, Table 2",
            "Known regions of the human brain",
            "V1 to FFA",
            missing("no human fMRI with regions here; `vt.algonauts` opens it where somebody has it"),
        ),
    ),
    (
        ("align_mosaic.png", "Figure 4: colours by picture, network and layer"),
        ("align_mosaic_agree.png", "The same where patches have to agree (`lambda_agree=1`), a term of ours"),
        ("align_segments.png", "Figure 5: segmentation by layer before and after"),
        ("align_paths.png", "Figure 9: paths of figure and ground"),
        ("align_transitions.png", "Figure 10: where patches go from layer to layer"),
    ),
    (
        ("1", "features into the shared space, V' = V W", "lenses.align_finding:ChannelAlign.transform"),
        ("2", "responses from means over patches and slots", "lenses.align_training:AlignNet.forward"),
        ("B_i", "what a patch adds to each response", "lenses.align_finding:ChannelAlign.in_response_space"),
        ("3", "normalized affinity exp(cos - 1)", "kernels.projector:normalized"),
        ("3", "eigenvectors of few nodes", "kernels.ncut:exact_cut"),
        ("4", "propagation from a sample to all nodes", "kernels.ncut:paper_cut"),
        ("beyond", "the same for millions of nodes", "kernels.ncut:low_rank_cut"),
        ("5, 8", "eigen-constraint with focal weight", "lenses.align_training:eigen_constraint"),
        ("6", "zero-centred channels", "lenses.align_training:zero_centre"),
        ("7", "covariance of channels", "lenses.align_training:covariance"),
        ("9, 10", "L1 loss of the responses, and the whole loss", "lenses.align_training:losses"),
        ("beyond", "patches more like themselves in other slots than like others", "lenses.align_training:agreement"),
        ("C.4", "oracle segmentation", "evidence.oracle:oracle_segmentation"),
        ("C.5", "spectral t-SNE", "lenses.align_colors:spectral_tsne"),
        ("3.3", "farthest-point concepts", "lenses.align_colors:concepts"),
    ),
)

TOKENS = Paper(
    "tokens",
    "ULTra: unveiling latent token interpretability",
    "A DINOv2-S fine-tuned for saliency at 112 pixels and ViTs of 9.5 million weights at 64, four to 32 pictures of a set (PASCAL animals, "
    "pets, CamVid, BSDS) in place of COCO-Stuff, VOC, Cityscapes and Potsdam in full. Intervals are bootstraps over pictures.",
    (
        Claim(
            "Table 5",
            "Relevant patches move a token further than irrelevant ones",
            "1.1 to 1.7 times",
            of.perturbed,
            "tokens_perturbation",
        ),
        Claim(
            "Tables 1 to 4",
            "Segments of the lens are better than those of simpler ways (paper: than trained ones, too)",
            "VOC mIoU 50.0 (DINO ViT-B/16, sum), ACSeg 47.1",
            of.segment_level,
            "tokens_segments",
        ),
        Claim("Table 2", "Learned w is better than the sum", "VOC 50.5 against 50.0", of.learned_w, "tokens_segments"),
        Claim("Figure 13", "Deeper layers know objects better", "ITIoU rises with depth", of.deeper, "tokens_layers"),
        Claim(
            "Figure 12", "Maps cover their objects at τ = 0.2", "ITIoU 0.395 on VOC", of.itiou_level, "tokens_layers"
        ),
        Claim(
            "Figures 7, 17",
            "Words with high scores matter for a summary",
            "above random from 15 % on",
            of.words,
            "tokens_language",
        ),
        Claim(
            "Tables 1, 3, 4",
            "COCO-Stuff, Cityscapes and Potsdam",
            "mIoU of each",
            missing("the data sets are not here; their layouts can be read (`vt.dataset`)"),
        ),
    ),
    (
        ("tokens_pictures_maps.png", "Figure 2: maps of single tokens"),
        ("tokens_pictures_segments.png", "Figure 3: five segments a picture"),
        ("tokens_segments_voc_animals.png", "Figure 3 as it is scored: as many segments as classes, and baselines"),
        ("tokens_pictures_blocks.png", "Figure 4: one token through the blocks"),
        ("tokens_language_words.png", "Figure 6: words that a summary rests on"),
    ),
    (
        (
            "1, 2, 3",
            "maps of a class (Chefer et al.), which the lens carries over to tokens",
            "baselines.chefer:chefer",
        ),
        (
            "4",
            "contribution maps I + mean over heads of (∂f/∂A)⁺ ⊙ A, all tokens at once",
            "kernels.token_backward:token_rows",
        ),
        ("5", "explanation maps of every latent token", "lenses.tokens:token_maps"),
        ("6", "maps of a cluster summed", "lenses.tokens_segments:Segments.summed"),
        ("7", "a pixel goes to the largest sum", "lenses.tokens_segments:Segments.labels"),
        ("8", "weights w in place of the sum, `target=w`", "lenses.tokens:token_maps"),
        ("9, 10, 11", "self-consistency, learned w", "lenses.tokens_learned:SelfConsistency.fit"),
        ("12", "object mask at τ", "lenses.tokens_segments:object_mask"),
        ("13", "scores of a context's words", "lenses.tokens_text:context_scores"),
        ("14", "perturbation test", "evidence.perturbation:perturbation_test"),
        ("15", "ITIoU", "evidence.itiou:itiou"),
        ("16 to 20", "comprehensiveness", "evidence.comprehensiveness:comprehensiveness"),
        ("21 to 23", "attention of any model, probabilities and gradients", "attention:open_attention"),
        ("4.1", "U. mIoU and U. accuracy, per image", "evidence.segments:per_image"),
        ("4.1", "the same over a data set", "evidence.segments:over_dataset"),
    ),
)

PAPERS = (STRUCTURE, DISENTANGLE, ALIGN, TOKENS)


def claims_table(paper: Paper) -> str:
    lines = ["| claim | paper | here | verdict |", "| --- | --- | --- | --- |"]
    for claim in paper.claims:
        said, told = claim.found()
        whole = f" ([table](../studies/results/{claim.page}.md))" if claim.page else ""
        lines.append(f"| {claim.says} ({claim.where}) | {claim.theirs} | {said}{whole} | **{told}** |")
    return "\n".join(lines)


def measured_tables(paper: Paper) -> str:
    """The first generated table of each study that this paper's claims rest on, or its first two titled ones."""
    parts = []
    for page in dict.fromkeys(claim.page for claim in paper.claims if claim.page):
        text = re.sub(r"\]\((?=[\w-]+\.(png|md)\))", "](../studies/results/", (of.RESULTS / f"{page}.md").read_text())
        marked = re.findall(r"<!-- table: (.*?) -->\n(.*?)<!-- end -->", text, re.DOTALL)[:1]
        titled = re.findall(r"^## (Table .*?)\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)[:2]
        parts += [f"### {page}: {name}\n\n{table.strip()}\n" for name, table in marked or titled]
    return "\n".join(parts)


def paper_page(paper: Paper) -> str:
    figures = "\n\n".join(f"![{says}](../studies/results/{file})\n\n*{says}*" for file, says in paper.figures)
    return (
        f"# {paper.title}\n\n{MADE}\n\nThe lens is described in [{paper.lens}]({paper.lens}.md), "
        f"[equation by equation]({paper.lens}.md#{EQUATIONS}). {paper.differs}\n\n"
        f"## Claims\n\n{claims_table(paper)}\n\n## Figures\n\n{figures}\n\n## Tables\n\n{measured_tables(paper)}"
    ).rstrip() + "\n"


def lens_page(paper: Paper) -> str:
    """The page as it is, with the table of equations between its marks."""
    rows = [f"| {number} | {what} | `vitreous.{where.replace(':', '.')}` |" for number, what, where in paper.equations]
    table = "\n".join(["| equation or section | what | function |", "| --- | --- | --- |", *rows])
    marks = re.compile(r"(<!-- table: equations -->\n).*?(<!-- end -->)", re.DOTALL)
    text, count = marks.subn(lambda m: f"{m[1]}{table}\n{m[2]}", (DOCS / f"{paper.lens}.md").read_text())
    assert count == 1, paper.lens
    return text


def overview() -> str:
    parts = [
        f"# Results\n\n{MADE}\n",
        "Every claim of the four papers that could be rerun here, ours beside theirs. Numbers come from `studies/results/*.json` by code. Our "
        'models and data are far smaller than the papers\': "does not hold" means does not hold here.\n',
        "**How a verdict is made.** One rule for all (`studies/paper_claims.py`): a claim is one comparison or several, each a difference that "
        "is above 0 if the paper is right. It *holds* if every difference is above 0 with its whole 95 % interval, *does not hold* if none is "
        "above 0, and *holds partly* otherwise: some comparisons fail, or an interval reaches 0, or there is one seed and no interval. Which "
        "comparisons a claim consists of was written down after the results had been seen, and the papers' sentences leave room for that; a first "
        "version of this page also had thresholds of our own, which are gone.\n",
        "**Intervals** in brackets are 95 %: bootstraps over pictures or texts, Student's over seeds, the t statistic's over pairs; where two values "
        "have an interval each, their difference is as uncertain as both together. They do not speak for other data or other trainings than "
        "those repeated: where a network was trained once, its row says so.\n",
        "`make studies` writes these pages anew from the JSON files; each study's page names the command that made its file.\n",
    ]
    counted = Counter(claim.found()[1] for paper in PAPERS for claim in paper.claims)
    parts.append("| verdict | claims |\n| --- | --- |")
    parts += [f"| {name} | {counted[name]} |" for name in (of.HOLDS, of.PARTLY, of.NOT, of.UNTESTED)]
    for paper in PAPERS:
        parts.append(
            f"\n## {paper.title}\n\n[Tables and figures](paper_{paper.lens}.md), [equations]({paper.lens}.md#{EQUATIONS}). {paper.differs}\n"
        )
        parts.append(claims_table(paper))
    return "\n".join([*parts, "", beyond()]) + "\n"


def beyond() -> str:
    """What no paper claims: the study of the audit, its first two tables."""
    text = (of.RESULTS / "audit_scenes.md").read_text()
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)[:2]
    return (
        "## Beyond the papers: does the audit find planted shortcuts?\n\n"
        "Sixty networks, shortcuts planted at five strengths or none; in brackets exact 95 % intervals of a share. "
        "[Every network](../studies/results/audit_scenes.md), and [how to audit your own](audit.md).\n\n"
        + "\n".join(tables)
        + "\n"
        + pets()
    ).rstrip()


def pets() -> str:
    """Photographs whose text box tells the species: what each way does where the box lies, on the seeds that all ran."""
    parts, places = (json.loads((of.RESULTS / f"audit_pets{end}.json").read_text())["rows"] for end in ("", "_places"))
    every = {(row["model"], row["seed"]): row for row in parts}
    lines = [
        "Photographs with a text box that tells the species, linear probes on frozen networks: accuracy where the box "
        "lies (0.5 is chance), mean over seeds. [Parts, features, Grad-CAM, retraining](../studies/results/audit_pets.md), "
        "[places](../studies/results/audit_pets_places.md).\n",
        "| network | seeds | as it is | sub-units off | units off | features off | places off | retrained without boxes |",
        "| --- " * 8 + "|",
    ]
    for name in dict.fromkeys(row["model"] for row in places):
        both = [(row, every[key]) for row in places if (key := (row["model"], row["seed"])) in every and key[0] == name]
        ways = [[old[way]["lying"] for _, old in both] for way in ("nothing", "sub-units", "units", "dictionary")]
        ways += [[new["off"]["lying"] for new, _ in both], [old["no boxes"]["lying"] for _, old in both]]
        cells = [f"{sum(way) / len(way):.2f}" for way in ways]
        lines.append(f"| {name} | {', '.join(str(new['seed']) for new, _ in both)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    of_papers = {f"paper_{paper.lens}.md": paper_page(paper) for paper in PAPERS}
    return {"results.md": overview()} | of_papers | {f"{paper.lens}.md": lens_page(paper) for paper in PAPERS}


if __name__ == "__main__":
    for name, text in pages().items():
        (DOCS / name).write_text(text)

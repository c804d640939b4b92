"""Four papers, one lens each. A lens begins in the file of its name, which holds the paper's letters and equations.

What a lens needs beside its method stands in files that begin with its name: `_finding.py` what it finds, others a
later section of the paper, or a step that is long. Algorithms without a model are in `kernels/`, metrics in
`evidence/`. Lenses do not import one another.

    structure      sections 3 and 4: clusters of units over layers
                   _comparison models side by side; the loss of section 3.4 is `training/structure_loss.py`
    disentangle    sections 3.1 to 3.3: sub-units (ELUDe)
                   _rows what enters the layer, _units 3.1 to 3.3 for one unit, _device the same on a GPU, _expansion
                   E.6, _work and _share runs that go on or share their units; eq. 3 to 5 `kernels/split_weights.py`,
                   eq. 6 and 8 `subunits/`
    align          section 2.1: channel align (AlignedCut)
                   _training eq. 5 to 10, _cut 2.2 (eq. 3 and 4), _colors C.5 and 3.3, _atlas 3.4, _segmentation 3.1
                   and C.4, _likeness Figure 3, _nodes what is cut, _checks what is refused
    tokens         section 3.2: what a latent token is made of (ULTra)
                   _segments eq. 6, 7 and 12, _learned eq. 9 to 11, _text eq. 13; _read and _watch find out how a block
                   is built for the one backward pass of `kernels/token_backward.py`, _autograd the long way; _inputs,
                   _files
"""

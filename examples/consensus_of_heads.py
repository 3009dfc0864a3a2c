"""Tell known from unknown by the consensus of several classifiers (Eqs. 7 and 13 of the paper).

    python examples/consensus_of_heads.py

Any classifiers will do: here ten random linear ones that agree on half of the images.
"""

import torch

from dac.consensus import consensus, soft_rejection
from dac.otsu import otsu_threshold

generator = torch.Generator().manual_seed(0)
shared = 6 * torch.randn(8, 1, 5, generator=generator)  # 8 images: all heads see the same
private = 6 * torch.randn(8, 10, 5, generator=generator)  # 8 images: each of 10 heads its own
logits = torch.cat([shared.expand(8, 10, 5), private]) + torch.randn(16, 10, 5, generator=generator)

score = consensus(logits.softmax(dim=2))  # one number per image, 1 where all heads agree
threshold = otsu_threshold(score)
weight = soft_rejection(score, threshold, temperature=1.5)
for number, (s, w) in enumerate(zip(score.tolist(), weight.tolist(), strict=True)):
    verdict = "inlier" if s >= threshold else "outlier"
    print(f"image {number:2}  consensus {s:.2f}  weight in training {w:.2f}  {verdict}")

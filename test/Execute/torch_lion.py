#===- torch_lion.py - Lion as an optimizer of PyTorch -*- Python -*-------===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""Lion, which torch.optim does not have."""

import torch


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, Algorithm 2."""

    def __init__(self, groups, betas: tuple[float, float], **defaults):
        super().__init__(groups, {"betas": betas, **defaults})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for w in group["params"]:
                m = self.state[w].setdefault("m", torch.zeros_like(w))
                c = beta1 * m + (1 - beta1) * w.grad
                w.mul_(1 - group["lr"] * group["weight_decay"])
                w.sub_(group["lr"] * c.sign())
                m.mul_(beta2).add_(w.grad, alpha=1 - beta2)

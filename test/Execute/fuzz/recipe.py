#===- recipe.py - What a drawn model is trained with ------*- Python -*----===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
#===-----------------------------------------------------------------------===#
"""The step and the batch of a drawn model. Without PyTorch, so that models can be
drawn where it is not."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What plait-run is told."""

    steps: int = 2
    lr: float = 0.03
    beta1: float = 0.9
    beta2: float = 0.95
    # Adam divides by the gradient's size: with a smaller one, elements whose
    # gradient is nothing but rounding would move as far as all others.
    eps: float = 1e-2
    weight_decay: float = 0.1
    grad_clip: float = 1.0
    momentum: float = 0.9  # of matrices, where the optimizer is Muon
    adamw_lr_factor: float = 0.5


@dataclasses.dataclass(frozen=True)
class Batch:
    """Which sequences meet in one evaluation of @loss."""

    micro: int  # sequences of a data-parallel rank
    data: int  # data-parallel ranks
    microbatches: int

    @property
    def size(self) -> int:
        return self.micro * self.data * self.microbatches

    def rows(self, step: int, microbatch: int) -> list[int]:
        """Samples of a microbatch: each rank has a contiguous part of the
        batch, and each of its microbatches one of that."""
        first = (step - 1) * self.size + microbatch * self.micro
        part = self.micro * self.microbatches
        return [
            first + rank * part + row
            for rank in range(self.data)
            for row in range(self.micro)
        ]

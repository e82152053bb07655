# ===- refused.py - Models that cannot be expressed -*- Python -*---===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Models for which from_torch has an error: the error, and a word of the line of
Python that it has to name."""

import torch
from torch import nn

VOCABULARY, HIDDEN = 64, 32


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def inner(self, x):
        return x

    def forward(self, tokens):
        return self.head(self.inner(self.embed(tokens)))


class Sorted(Base):
    def inner(self, x):
        return x.sort(-1)[0]  # the line of sorted


class Branches(Base):
    def inner(self, x):
        return x * 2 if x.sum() > 0 else x  # the line of branches


class Convolved(Base):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(HIDDEN, HIDDEN, 3, padding=1)

    def inner(self, x):
        return self.conv(x.transpose(1, 2)).transpose(1, 2)  # the line of convolved


class Counts(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def inner(self, x):
        self.calls += 1
        return x


class Chooses(Base):
    def inner(self, x):
        return x * x.argmax(-1, True)  # the line of chooses


class Compares(Base):
    def forward(self, tokens):
        hidden = (tokens > 5)[..., None]  # the line of compares
        return self.head(self.embed(tokens).masked_fill(hidden, 0.0))


class Pooled(Base):
    def forward(self, tokens):
        return self.head(self.embed(tokens).mean(1))


class Quantised(Base):
    def inner(self, x):
        return x.to(torch.int32).float()  # the line of quantised


class Retyped(Base):
    def __init__(self):
        super().__init__()
        self.register_buffer("steps", torch.arange(3))

    def inner(self, x):
        return x * x.type_as(self.steps)  # the line of retyped


class Noisy(Base):
    def inner(self, x):
        return x + torch.randn(x.shape)  # the line of noisy


class Double(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 3 * gradient


class Own(Base):
    def inner(self, x):
        return Double.apply(x)  # the line of own


class Smoothed(Base):
    pass


def smoothed(output, targets):
    return nn.functional.cross_entropy(
        output.flatten(0, 1), targets.flatten(), label_smoothing=0.1
    )


class Regression(Base):
    pass


def regression(output, targets):
    return (output.mean(-1) - targets).pow(2).mean()


class Largest(Base):
    pass


def largest(output, targets):
    return output.amax()


class Rooted(Base):
    pass


def rooted(output, targets):
    return output.pow(2).sum().sqrt() / output.pow(2).sum()


class Further(Base):
    """A second loss is of the token after the next."""


def further(output, targets):
    cross_entropy = nn.functional.cross_entropy
    first = cross_entropy(output.flatten(0, 1), targets.flatten())
    return first + cross_entropy(output[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


class Shared(Base):
    """Two parameters with one memory, as views have it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(HIDDEN, HIDDEN))
        self.second = nn.Parameter(self.first.data.t())

    def inner(self, x):
        return x @ self.first @ self.second


class Overlapping(Shared):
    """Parts of one tensor that have a column in common."""

    def __init__(self):
        super().__init__()
        whole = torch.randn(HIDDEN, 2 * HIDDEN)
        self.first = nn.Parameter(whole[:, :HIDDEN])
        self.second = nn.Parameter(whole[:, HIDDEN - 1 : -1])


class Unshaped(Base):
    def __init__(self):
        super().__init__()
        self.lazy = nn.LazyLinear(HIDDEN)

    def inner(self, x):
        return self.lazy(x)


class Blocked(Base):
    """Positions in blocks, as of attention to those nearby."""

    def inner(self, x):
        blocks = x.unflatten(1, (-1, 4))  # the line of blocked
        return (blocks - blocks.mean(2, keepdim=True)).flatten(1, 2)


class Frequent(Base):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, HIDDEN, scale_grad_by_freq=True)

    def forward(self, tokens):
        return self.head(self.table(tokens))  # the line of frequent


class Empty(Base):
    """What the loss does not depend on is a parameter, too."""

    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(0, HIDDEN))


CASES = {
    "sorted": (Sorted, {}, "'aten.sort' has no counterpart"),
    "branches": (Branches, {}, "torch.export cannot trace this"),
    "convolved": (Convolved, {}, "a convolution with overlapping windows"),
    "counts": (Counts, {}, "changes its buffer 'calls'"),
    "chooses": (Chooses, {}, "'aten.argmax' has no counterpart"),
    "compares": (Compares, {}, "a comparison of tokens other than == and !="),
    "pooled": (Pooled, {}, "expected one of logits, [batch, sequence, vocabulary]"),
    "quantised": (Quantised, {}, "a conversion of computed numbers to torch.int32"),
    "retyped": (Retyped, {}, "a conversion of computed numbers to torch.int64"),
    "noisy": (Noisy, {}, "'aten.randn' draws numbers"),
    "own": (Own, {}, "the gradient of 'Double'"),
    "smoothed": (Smoothed, {"loss": smoothed}, "label smoothing of 0.1"),
    "regression": (Regression, {"loss": regression}, "arithmetic with tokens or targets"),
    "largest": (Largest, {"loss": largest}, "the loss is neither a mean over the targets"),
    "rooted": (Rooted, {"loss": rooted}, "the loss is neither a mean over the targets"),
    "further": (Further, {"loss": further}, "that are shifted, and others that are not"),
    "shared": (Shared, {}, "'first' and 'second' are two that share memory"),
    "unshaped": (Unshaped, {}, "parameter 'lazy.weight' has no shape yet"),
    "blocked": (Blocked, {}, "the sequence would have to be split in 2 and 4"),
    "frequent": (Frequent, {}, "a lookup with scale_grad_by_freq"),
    "empty": (Empty, {}, "parameter 'nothing' of shape [0, 32] has no elements"),
    "overlapping": (Overlapping, {}, "'first' and 'second' are two that share memory"),
}

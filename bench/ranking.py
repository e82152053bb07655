# ===- ranking.py - How well predictions rank plans -------------*- Python -*-===#
#
# Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# ===-----------------------------------------------------------------------===#
"""Figures of agreement between the predicted and the measured seconds of the same
plans, lists in the same order."""

import itertools
import statistics


def kendall(predicted, measured):
    """Tau-b: ties count as neither. 0 where all of one side are equal."""
    score = ties_predicted = ties_measured = pairs = 0
    for i, j in itertools.combinations(range(len(predicted)), 2):
        a, b = predicted[i] - predicted[j], measured[i] - measured[j]
        pairs += 1
        ties_predicted += a == 0
        ties_measured += b == 0
        score += (a * b > 0) - (a * b < 0)
    scale = ((pairs - ties_predicted) * (pairs - ties_measured)) ** 0.5
    return score / scale if scale else 0.0


def find_regret(predicted, measured):
    """How much slower than the fastest plan the one is that was predicted fastest."""
    first = min(range(len(predicted)), key=lambda i: predicted[i])
    return measured[first] / min(measured) - 1


def find_errors(predicted, measured):
    return [p / m - 1 for p, m in zip(predicted, measured)]


def mean_error(predicted, measured):
    return statistics.mean(map(abs, find_errors(predicted, measured)))

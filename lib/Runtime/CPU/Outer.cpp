//===- Outer.cpp - What sites compute on a processor ----------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One loop for each kind. Memory bounds all of them, and the compiler's vectors
// are wide enough for that.
//
//===----------------------------------------------------------------------===//

#include "Outer.h"

#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace plait;
using namespace plait::runtime;

static float *numbersOf(std::byte *tensor) {
  return reinterpret_cast<float *>(tensor);
}

/// The step of SGD with Nesterov's momentum (Sutskever et al. 2013, as PyTorch
/// has it) before its rate; null: without momentum.
static float descend(float gradient, float beta, float *momentum) {
  if (!momentum)
    return gradient;
  *momentum = beta * *momentum + gradient;
  return gradient + beta * *momentum;
}

/// The gradient of the second optimizer is what weights have moved by, the
/// other way round, so that it descends along it.
static void update(const OuterOperands &operands, int64_t begin, int64_t end) {
  float *value = numbersOf(operands.value);
  float *anchor = numbersOf(operands.anchor);
  float *momentum = numbersOf(operands.momentum);
  for (int64_t i = begin; i < end; ++i) {
    anchor[i] -=
        operands.rate * descend(value[i] / operands.sites, operands.beta,
                                momentum ? momentum + i : nullptr);
    value[i] = anchor[i];
  }
}

/// The second optimizer is that of update(). With nothing to keep, a site has
/// the anchor's own bits.
static void blend(const OuterOperands &operands, int64_t begin, int64_t end) {
  float *value = numbersOf(operands.value);
  float *anchor = numbersOf(operands.anchor);
  float *momentum = numbersOf(operands.momentum);
  const float *sum = numbersOf(operands.mixed);
  for (int64_t i = begin; i < end; ++i) {
    anchor[i] -= operands.rate * descend(sum[i] / operands.sites, operands.beta,
                                         momentum ? momentum + i : nullptr);
    value[i] = operands.keep == 0
                   ? anchor[i]
                   : anchor[i] + operands.keep * (value[i] - anchor[i]);
  }
}

/// Differences are added, so that what all sites have in common stays as it is,
/// whatever weights round to.
static void mix(const OuterOperands &operands, int64_t begin, int64_t end) {
  const float *value = numbersOf(operands.value);
  const float *others = reinterpret_cast<const float *>(operands.others);
  float *mixed = numbersOf(operands.mixed);
  const float *base = operands.isFirst ? value : mixed;
  float weight = operands.weight;
  // Nothing has been received: those bytes may be anything.
  if (weight == 0) {
    std::copy(base + begin, base + end, mixed + begin);
    return;
  }
  for (int64_t i = begin; i < end; ++i)
    mixed[i] = base[i] + weight * (others[i] - value[i]);
}

/// Sorted by insertion, as sites are few. NaN has no place in an order: where
/// there is one, the result is one.
static void takeMiddle(const OuterOperands &operands, int64_t elements,
                       int64_t begin, int64_t end) {
  const float *others = reinterpret_cast<const float *>(operands.others);
  float *mixed = numbersOf(operands.mixed);
  size_t sites = size_t(operands.sites), drop = operands.drop;
  std::vector<float> own(sites);
  for (int64_t i = begin; i < end; ++i) {
    float all = 0;
    for (size_t j = 0; j < sites; ++j) {
      float value = others[j * elements + i];
      all += value;
      size_t place = j;
      for (; place > 0 && own[place - 1] > value; --place)
        own[place] = own[place - 1];
      own[place] = value;
    }
    float sum = 0;
    for (size_t j = drop; j < sites - drop; ++j)
      sum += own[j];
    mixed[i] = std::isnan(all) ? all : sum / float(sites - 2 * drop);
  }
}

/// Leaves corrections as they are where the rate is 0: steps of no rate say
/// nothing of gradients.
static void learn(const OuterOperands &operands, int64_t begin, int64_t end) {
  float rate = operands.every * operands.learningRate;
  if (rate == 0)
    return;
  const float *value = numbersOf(operands.value);
  const float *mixed = numbersOf(operands.mixed);
  float *correction = numbersOf(operands.correction);
  for (int64_t i = begin; i < end; ++i)
    correction[i] += (value[i] - mixed[i]) / rate;
}

/// Adds up in double precision: no square of a number in fp32 is too large or
/// too small.
double runtime::sumSquares(const OuterOperands &operands, int64_t begin,
                           int64_t end) {
  const float *value = numbersOf(operands.value);
  double sum = 0;
  for (int64_t i = begin; i < end; ++i)
    sum += double(value[i]) * double(value[i]);
  return sum;
}

/// A site with something that is no number counts as one that has not moved,
/// also where this is in another rank's weights.
static void clip(const OuterOperands &operands, int64_t begin, int64_t end) {
  float *value = numbersOf(operands.value);
  float squares = *reinterpret_cast<const float *>(operands.others);
  if (!std::isfinite(squares)) {
    std::fill(value + begin, value + end, 0.0f);
    return;
  }
  float factor =
      float(std::min(1.0, operands.radius / std::sqrt(double(squares))));
  for (int64_t i = begin; i < end; ++i)
    value[i] *= factor;
}

void runtime::runOuter(fb::OuterKind kind, const OuterOperands &operands,
                       int64_t elements, int64_t begin, int64_t end) {
  float *value = numbersOf(operands.value);
  switch (kind) {
  case fb::OuterKind::Mean:
    for (int64_t i = begin; i < end; ++i)
      value[i] /= operands.sites;
    return;
  case fb::OuterKind::Difference:
    for (int64_t i = begin; i < end; ++i)
      value[i] = numbersOf(operands.anchor)[i] - value[i];
    return;
  case fb::OuterKind::Update:
    return update(operands, begin, end);
  case fb::OuterKind::Round:
    for (int64_t i = begin; i < end; ++i)
      reinterpret_cast<BFloat16 *>(operands.copy)[i] = BFloat16(value[i]);
    return;
  case fb::OuterKind::Mix:
    return mix(operands, begin, end);
  case fb::OuterKind::Take:
    std::copy_n(numbersOf(operands.mixed) + begin, end - begin, value + begin);
    return;
  case fb::OuterKind::Middle:
    return takeMiddle(operands, elements, begin, end);
  case fb::OuterKind::Part:
    for (int64_t i = begin; i < end; ++i)
      numbersOf(operands.mixed)[i] = numbersOf(operands.anchor)[i] - value[i];
    return;
  case fb::OuterKind::Blend:
    return blend(operands, begin, end);
  case fb::OuterKind::Correct:
    for (int64_t i = begin; i < end; ++i)
      value[i] += operands.learningRate * numbersOf(operands.correction)[i];
    return;
  case fb::OuterKind::Learn:
    return learn(operands, begin, end);
  case fb::OuterKind::Join:
    for (int64_t i = begin; i < end; ++i)
      value[i] += numbersOf(operands.mixed)[i] - numbersOf(operands.anchor)[i];
    return;
  case fb::OuterKind::Keep:
    std::copy_n(value + begin, end - begin, numbersOf(operands.anchor) + begin);
    return;
  case fb::OuterKind::Clip:
    return clip(operands, begin, end);
  case fb::OuterKind::Squares: // by blocks, see sumSquares()
  case fb::OuterKind::Encode:
  case fb::OuterKind::Decode: // by chunks, see SiteMessages.h
    return;
  }
}

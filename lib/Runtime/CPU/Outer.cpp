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

using namespace plait;
using namespace plait::runtime;

static float *numbersOf(std::byte *tensor) {
  return reinterpret_cast<float *>(tensor);
}

/// The gradient of the second optimizer is what weights have moved by, the
/// other way round, so that it descends along it (Sutskever et al. 2013, as
/// PyTorch has it).
static void update(const OuterOperands &operands, int64_t begin, int64_t end) {
  float *value = numbersOf(operands.value);
  float *anchor = numbersOf(operands.anchor);
  float *momentum = numbersOf(operands.momentum);
  for (int64_t i = begin; i < end; ++i) {
    float step = value[i] / operands.sites;
    if (momentum) {
      momentum[i] = operands.beta * momentum[i] + step;
      step += operands.beta * momentum[i];
    }
    anchor[i] -= operands.rate * step;
    value[i] = anchor[i];
  }
}

void runtime::runOuter(fb::OuterKind kind, const OuterOperands &operands,
                       int64_t begin, int64_t end) {
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
  }
}

//===- Operands.h - Operands of library steps -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CORE_OPERANDS_H
#define PLAIT_LIB_RUNTIME_CORE_OPERANDS_H

#include "plait/Plan/Uses.h"
#include "plait/Runtime/Communicator.h"
#include "plait/Runtime/Device.h"
#include "plait/Support/MemoryPlaces.h"

namespace plait::runtime {

/// The memory that a rank's offsets are in.
struct RankMemory {
  PerPlace<std::byte *> places;

  explicit RankMemory(Device &device) {
    for (const MemoryPlaceFacts &facts : memoryPlaces)
      places[facts.place] = device.memory(facts.place);
  }

  std::byte *at(uint64_t offset) const {
    MemoryPlace place = getMemoryPlace(offset);
    return places[place] + (offset - getBegin(place));
  }
  /// Returns the address of `ref` for a step of `action`.
  std::byte *at(const plan::fb::Action &action,
                const plan::fb::Ref &ref) const {
    uint64_t start = ref.slot() < 0 ? 0 : action.bindings()->Get(ref.slot());
    return at(start + ref.offset());
  }
};

/// `resolve` gives the address of a Ref.
template <typename Resolve>
GemmOperands operandsOf(const plan::fb::GemmStep &step, Resolve resolve) {
  GemmOperands operands = {};
  operands.a = resolve(*step.a());
  operands.b = resolve(*step.b());
  operands.c = resolve(*step.c());
  if (step.bias())
    operands.bias = resolve(*step.bias());
  if (step.gelu_input())
    operands.geluInput = resolve(*step.gelu_input());
  return operands;
}

template <typename Resolve>
GroupedGemmOperands operandsOf(const plan::fb::GroupedGemmStep &step,
                               Resolve resolve) {
  return {resolve(*step.a()), resolve(*step.b()), resolve(*step.ids()),
          resolve(*step.c())};
}

template <typename Resolve>
AttentionOperands operandsOf(const plan::fb::AttentionStep &step,
                             Resolve resolve) {
  AttentionOperands operands = {};
  operands.q = resolve(*step.q());
  operands.k = resolve(*step.k());
  operands.v = resolve(*step.v());
  operands.o = resolve(*step.out());
  operands.stats = resolve(*step.stats());
  if (step.kind() == plan::fb::AttentionKind::Backward) {
    operands.gradient = resolve(*step.d_out());
    operands.dq = resolve(*step.d_q());
    operands.dk = resolve(*step.d_k());
    operands.dv = resolve(*step.d_v());
  }
  if (step.starts())
    operands.starts = resolve(*step.starts());
  if (step.sinks())
    operands.sinks = resolve(*step.sinks());
  if (const plan::fb::AttentionDropout *dropout = step.dropout())
    operands.dropoutKeys = resolve(*dropout->keys());
  return operands;
}

/// Runs `step` of `group`, by whatever it moves.
template <typename Resolve>
Status runCollective(Group &group, const plan::fb::CollectiveStep &step,
                     Resolve resolve) {
  const std::byte *input = resolve(*step.input());
  std::byte *output = resolve(*step.output());
  CollectiveShape shape = {step.dtype(), step.outer(), step.chunk(),
                           step.middle(), step.splits_inner()};
  CollectiveKind kind = plan::kindOf(step);
  if (const plan::fb::RowSelection *rows = step.rows()) {
    RowChoice choice = {
        reinterpret_cast<const int32_t *>(resolve(*rows->ids())), rows->width(),
        rows->choices(), rows->experts(), getFacts(kind).reduces};
    return group.moveRows(input, output, shape, choice);
  }
  return group.run(kind, input, output, shape, step.reduction());
}

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CORE_OPERANDS_H

//===- CompressedTime.cpp - Gradients that are sent compressed ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The messages that replicas send in place of gradients, and what it takes to
// make them and to add them up (lib/Transforms/Gradients/CompressedSum.cpp).
//
//===----------------------------------------------------------------------===//

#include "Replicated.h"
#include "plait/Configuration/CompressionFacts.h"

using namespace plait;
using namespace plait::planner;

Replicated planner::getMessages(CollectiveKind kind, double chunks,
                                const Context &context) {
  const Compression &compression = context.training.compress;
  ChunkMessage message = compression.getMessage();
  Replicated made;
  for (uint64_t bytes : {message.getCodeBytes(), message.getNumberBytes()})
    if (bytes)
      made.add(getCollective(kind, Axis::DP, chunks * bytes,
                             context.group(Axis::DP), context),
               double(compression.rounds));
  return made;
}

/// Counts the parts in which ranks add up what replicas have compressed.
static double countAddedParts(bool experts, const Context &context) {
  if (context.training.compress.both)
    return context.configuration.mesh[Axis::DP];
  return context.zero(experts) >= 1 ? context.divisions(experts) : 1;
}

Replicated planner::getCompressed(double elements, Summed summed,
                                  const Context &context) {
  double replicas = context.configuration.mesh[Axis::DP];
  double parts = countAddedParts(summed.isExperts, context);
  double chunks = elements / double(context.training.compress.block);
  bool sendsRows = replicas > 1 && parts > 1;
  Replicated made = getMessages(
      sendsRows ? CollectiveKind::AllToAll : CollectiveKind::AllGather,
      chunks * (sendsRows ? replicas / parts : replicas), context);
  made.add(getOthers(elements * context.gradientBytes(), summed, context));
  return made;
}

double planner::compressingSeconds(double parameters, const Context &context) {
  const Compression &compression = context.training.compress;
  constexpr double number = sizeof(float);
  ChunkMessage message = compression.getMessage();
  double word = double(message.getCodeBytes() + message.getNumberBytes()) /
                double(compression.block);
  double made =
      ((compression.feedback ? 4 : 2) + (sendsMomentum(compression) ? 1 : 0)) *
      number;
  double packed = number + word;
  double added =
      number + context.configuration.mesh[Axis::DP] * (word + 2 * number);
  double parts = countAddedParts(/*experts=*/false, context);
  added /= parts;
  if (compression.both)
    added += (made + packed) / parts + word + number;
  double summed = double(compression.rounds - 1) * 2 * number;
  double moved = double(compression.rounds) * (made + packed + added) + summed;
  return memoryCost(parameters * moved, context.cluster.device).seconds;
}

//===- Operation.cpp - Time of one operation ------------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One operation of a profile as a cost: sizes are scaled to the microbatch and
// to the ranks that share a sequence, elements become bytes, and the rest is
// the matmul's, the attention's or a kernel's own model. Also the models that
// are a formula each: a kernel bound by memory, and ranks that share a
// processor.
//
//===----------------------------------------------------------------------===//

#include "Cost/Parts.h"

#include <algorithm>

using namespace plait;
using namespace plait::planner;

namespace {

/// Exactly one size grows with the microbatch, or none. Under context
/// parallelism a rank has its part of the tokens, rounded up, as the longest
/// part counts. Where the contraction is what grows, the result is a weight's
/// gradient, which may be written in another width or added to a sum, and made
/// together with others.
Cost matmulOperationCost(const Operation &operation, const Device &device,
                         const CostOptions &options) {
  Matmul matmul = {operation.batch, operation.m, operation.n, operation.k};
  matmul.rowAlignment = operation.rowAlignment;
  auto scale = [&](int64_t &size) {
    int64_t parts = int64_t(options.sequenceParts) * options.pieces;
    size = (size * options.microBatch + parts - 1) / parts;
  };
  switch (operation.scaled) {
  case Operation::Scaled::None:
    break;
  case Operation::Scaled::Batch:
    scale(matmul.batch);
    break;
  case Operation::Scaled::M:
    scale(matmul.m);
    break;
  case Operation::Scaled::N:
    scale(matmul.n);
    break;
  case Operation::Scaled::K:
    scale(matmul.k);
    break;
  }
  matmul.inputBytes = matmul.outputBytes = elementBytes(options.precision);
  if (operation.pass == Pass::BackwardWeight &&
      operation.scaled == Operation::Scaled::K)
    matmul.outputBytes = options.weightGradientBytes;
  if (operation.adds)
    matmul.outputBytes *= 2; // read and written
  if (!options.joinsGradients)
    return double(operation.joined) *
           matmulCost(matmul, device, options.precision);
  matmul.batch *= operation.joined;
  return matmulCost(matmul, device, options.precision);
}

} // namespace

double planner::elementBytes(Precision precision) {
  return precision == Precision::FP32 ? 4 : 2;
}

/// The bandwidth that large kernels reach, a fraction of the specified one.
double planner::getMemoryRate(const Device &device) {
  return device.memoryBandwidth * device.memoryFraction;
}

/// A roofline with two additions: traffic counts as `memoryHalfBytes` bytes
/// more, so that a kernel of that size reaches half of the rate, and every
/// kernel takes a launch. The shorter of arithmetic and traffic counts as
/// hidden behind the longer one, unlike for matmuls.
Cost planner::kernelCost(double bytes, double flops, const Device &device) {
  if (bytes <= 0 && flops <= 0)
    return {};
  double bandwidth = getMemoryRate(device);
  double memory = (bytes + device.memoryHalfBytes) / bandwidth;
  double arithmetic = flops / device.vectorFlops;
  return {std::max(memory, arithmetic) + device.launchSeconds,
          memory >= arithmetic ? memory : 0, device.launchSeconds};
}

/// Says what profiles of SiteMessages.cpp beside a training took, in operations
/// of vector kernels: 4 to 8 ns of an element, and 1.5.
double planner::getEncodeFlops(bool isSparse) { return isSparse ? 270 : 200; }
double planner::getDecodeFlops(bool isSparse) { return isSparse ? 4 : 50; }

/// Two limits: no rank computes faster than a whole core, which is `burst`
/// times its share, and all ranks together have no more than the processor,
/// which is busy for `busy` at least. In between, ranks that wait leave their
/// share to those that work.
double planner::sharedSeconds(double seconds, double busy,
                              const Device &device) {
  return std::max(std::min(seconds, busy), seconds / device.burst);
}

Cost planner::memoryCost(double bytes, const Device &device) {
  return kernelCost(bytes, 0, device);
}

/// Fixed elements (weights of norms, biases) do not scale with the sequences,
/// those of a microbatch do.
Cost planner::operationCost(const Operation &operation, const Device &device,
                            const CostOptions &options) {
  switch (operation.kind) {
  case OperationKind::Matmul:
    return matmulOperationCost(operation, device, options);
  case OperationKind::Attention:
    return attentionCost(operation, device, options);
  case OperationKind::Kernel: {
    if (operation.sumsSequences && options.microBatch == 1)
      return {};
    double sequences = double(options.microBatch) /
                       (double(options.sequenceParts) * options.pieces);
    double elements =
        operation.elementsPerSequence * sequences + operation.elementsFixed;
    return kernelCost(elements * elementBytes(options.precision) +
                          operation.fourBytePerSequence * sequences *
                              sizeof(float),
                      operation.flopsPerSequence * sequences, device);
  }
  // Timed in BlockTime.cpp, which knows the mesh.
  case OperationKind::Collective:
    break;
  }
  return {};
}

//===- DescribeCluster.cpp - A cluster as an attribute --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the compiler is told of a cluster, as an attribute of the module: rates
// of large work, a line for the collectives of each axis, and memory. The
// planner's curves are reduced to these figures here and nowhere else, so that
// sharding is decided by the same hardware file as the prediction
// (docs/Rationale.md).
//
//===----------------------------------------------------------------------===//

#include "plait/Planner/DescribeCluster.h"
#include "plait/Planner/Cost.h"

#include "mlir/IR/Builders.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;
using namespace plait;

/// To three digits, as dumps show it: a straight line says no more.
static FloatAttr describe(Builder &builder, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2e", value);
  return builder.getF64FloatAttr(std::strtod(text, nullptr));
}

/// Axes of one rank have no links.
static ArrayAttr describeLinks(Builder &builder,
                               const planner::Cluster &cluster,
                               const Mesh &mesh) {
  SmallVector<Attribute> links;
  for (const AxisFacts &facts : kAxes) {
    int size = mesh[facts.axis];
    if (size == 1)
      continue;
    planner::Line line = planner::fitCollectives(
        planner::getGroup(size, mesh.stride(facts.axis), cluster), cluster);
    links.push_back(LinkAttr::get(builder.getContext(), facts.name,
                                  describe(builder, line.latency),
                                  describe(builder, line.bandwidth)));
  }
  return builder.getArrayAttr(links);
}

ClusterAttr plait::describeCluster(MLIRContext *context,
                                   const planner::Cluster &cluster,
                                   StringRef name, Precision precision,
                                   const Mesh &mesh) {
  Builder builder(context);
  const planner::Device &device = cluster.device;
  // The rates are of large work in the training's precision: what the compiler
  // weighs against communication is large.
  auto rates = RatesAttr::get(
      context, describe(builder, planner::getGemmRate(device, precision)),
      describe(builder, planner::getMemoryRate(device)),
      describeLinks(builder, cluster, mesh),
      device.isProcessor ? 0 : int64_t(device.multiprocessors));
  return ClusterAttr::get(
      context, name, device.name, cluster.nodes, cluster.devicesPerNode,
      uint64_t(device.memoryBytes), uint64_t(device.reservedBytes),
      builder.getF64FloatAttr(device.peak(precision)), rates);
}

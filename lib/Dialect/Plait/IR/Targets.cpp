//===- Targets.cpp - Targets and clusters ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What executes a plan: the processor or GPU that code is made for, and the
// rates of the cluster, by which passes weigh what they may do.
//
//===----------------------------------------------------------------------===//

#include "plait/Dialect/Plait/IR/Plait.h"

#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace plait;

/// The number in "sm_90"; nothing in another text.
static std::optional<int> parseArchitecture(StringRef name) {
  int number = 0;
  if (!name.consume_front("sm_") || name.getAsInteger(10, number) || number < 1)
    return std::nullopt;
  return number;
}

/// The least that the plan's code runs on: what is chosen for it has to run on
/// all later ones.
int TargetAttr::getArchitecture() const {
  return isGPU() ? *parseArchitecture(getName()) : 0;
}

/// Fields of the other kind of target are errors rather than ignored: they
/// would be a mistake in a file that was written by hand.
LogicalResult TargetAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 TargetKind kind, StringRef name,
                                 StringRef features, StringRef cubin,
                                 uint64_t reserved) {
  bool isGPU = kind == TargetKind::CUDA;
  // (C1)
  if (!isGPU && (!cubin.empty() || reserved))
    return emitError() << "a cpu target has cubin \"" << cubin
                       << "\" and reserved " << reserved
                       << ", expected neither";
  if (isGPU && !features.empty())
    return emitError() << "a cuda target has features \"" << features
                       << "\", expected none";
  // (C2)
  if (name.empty())
    return emitError() << "a target has no name";
  // GPUs have both: code to compile when the plan is loaded, and code that is
  // ready.
  for (StringRef architecture : {name, cubin})
    if (isGPU && !parseArchitecture(architecture))
      return emitError() << "a cuda target has architecture \"" << architecture
                         << "\", expected one as sm_90";
  return success();
}

/// False for what is no number.
static bool isPositive(FloatAttr value) {
  return value && value.getValueAsDouble() > 0;
}

LogicalResult LinkAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               StringRef axis, FloatAttr latency,
                               FloatAttr bandwidth) {
  // (C1)
  if (latency && latency.getValueAsDouble() >= 0 && isPositive(bandwidth))
    return success();
  return emitError() << "the link along axis \"" << axis << "\" has latency "
                     << latency << " and bandwidth " << bandwidth
                     << ", expected a latency of 0 or more and a positive "
                        "bandwidth";
}

/// A straight line; the planner fits it to its own curves (DescribeCluster.h).
double LinkAttr::getSeconds(double bytes) const {
  return getLatency().getValueAsDouble() + getWireSeconds(bytes);
}

double LinkAttr::getWireSeconds(double bytes) const {
  return bytes / getBandwidth().getValueAsDouble();
}

/// Passes divide by rates, so that none may be zero.
LogicalResult RatesAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                FloatAttr gemmFlops, FloatAttr memoryBandwidth,
                                ArrayAttr links, int64_t gemmUnits) {
  // (C1)
  if (!isPositive(gemmFlops) || !isPositive(memoryBandwidth))
    return emitError() << "rates have gemm_flops " << gemmFlops
                       << " and memory_bandwidth " << memoryBandwidth
                       << ", expected positive numbers";
  // (C2)
  llvm::SmallDenseSet<StringRef> axes;
  for (Attribute value : links) {
    auto link = dyn_cast<LinkAttr>(value);
    if (!link)
      return emitError() << "rates have " << value
                         << " among their links, expected a #plait.link";
    if (!axes.insert(link.getAxis()).second)
      return emitError() << "rates have two links along axis \""
                         << link.getAxis() << "\"";
  }
  // (C3)
  if (gemmUnits < 0)
    return emitError() << "rates have gemm_units " << gemmUnits
                       << ", expected 0 or more";
  return success();
}

double RatesAttr::getGemmSeconds(double flops) const {
  return flops / getGemmFlops().getValueAsDouble();
}

double RatesAttr::getMemorySeconds(double bytes) const {
  return bytes / getMemoryBandwidth().getValueAsDouble();
}

/// A link of the axis itself before one of all axes, wherever they stand in the
/// list.
LinkAttr RatesAttr::findLink(StringRef axis) const {
  LinkAttr found;
  for (auto link : getLinks().getAsRange<LinkAttr>())
    if (link.getAxis() == axis || (link.getAxis().empty() && !found))
      found = link;
  return found;
}

/// A cluster without rates is one: passes then assume those of getRates().
LogicalResult ClusterAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                  StringRef name, StringRef, int64_t nodes,
                                  int64_t devicesPerNode, uint64_t memory,
                                  uint64_t reserved, FloatAttr peakFlops,
                                  RatesAttr) {
  // (C1)
  if (nodes < 1 || devicesPerNode < 1 || memory < 1 || !isPositive(peakFlops))
    return emitError() << "cluster \"" << name << "\" has " << nodes
                       << " nodes of " << devicesPerNode << " devices with "
                       << memory << " bytes and peak_flops " << peakFlops
                       << ", expected positive numbers";
  // (C2)
  if (reserved >= memory)
    return emitError() << "cluster \"" << name << "\" reserves " << reserved
                       << " of " << memory << " bytes";
  return success();
}

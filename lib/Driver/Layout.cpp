//===- Layout.cpp - Mesh and batch of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Layout.h"

#include "plait/Schedule/Generators.h"
#include "plait/Transforms/Names.h"
#include "plait/Transforms/Pipelines.h"
#include "llvm/ADT/STLExtras.h"

using namespace plait;

/// More ranks than any cluster has; products of sizes stay far from overflow.
static constexpr int64_t kMostRanks = int64_t(1) << 24;

namespace {
/// An axis that `--mesh` can name.
struct AxisSize {
  llvm::StringLiteral name;
  int64_t Layout::*size;
  bool onDemand = false;
};
} // namespace

/// Outermost first: what communicates most has the nearest neighbours.
static constexpr AxisSize kAxes[] = {
    {kPipelineAxis, &Layout::pipeline},
    {kDataAxis, &Layout::data},
    {kContextAxis, &Layout::context, /*onDemand=*/true},
    {kTensorAxis, &Layout::tensor}};

llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> Layout::axes() const {
  llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> result;
  for (const AxisSize &axis : kAxes)
    if (!axis.onDemand || this->*axis.size > 1)
      result.push_back({axis.name, this->*axis.size});
  return result;
}

std::string Layout::mesh() const {
  std::string text;
  for (auto [name, size] : axes())
    text += (text.empty() ? "" : ",") + name.str() + "=" + std::to_string(size);
  return text;
}

static Status parseMesh(llvm::StringRef text, Layout &layout) {
  if (text == "1")
    return Status::success();
  llvm::SmallVector<llvm::StringRef> entries;
  text.split(entries, ',');
  llvm::SmallVector<llvm::StringRef> seen;
  for (llvm::StringRef entry : entries) {
    auto [name, size] = entry.split('=');
    const AxisSize *known = llvm::find_if(
        kAxes, [&](const AxisSize &axis) { return axis.name == name; });
    if (known == std::end(kAxes))
      return fail("mesh \"", text.str(), "\" names axis \"", name.str(),
                  "\", expected pp, dp, cp or tp");
    int64_t *axis = &(layout.*known->size);
    if (llvm::is_contained(seen, name))
      return fail("mesh \"", text.str(), "\" names axis \"", name.str(),
                  "\" twice");
    seen.push_back(name);
    if (size.getAsInteger(10, *axis) || *axis < 1 || *axis > kMostRanks)
      return fail("mesh \"", text.str(), "\" gives axis ", name.str(),
                  " the size \"", size.str(), "\", expected 1 to ", kMostRanks);
    if (layout.ranks() > kMostRanks)
      return fail("mesh \"", text.str(), "\" has more than ", kMostRanks,
                  " ranks");
  }
  return Status::success();
}

Result<Layout> plait::makeLayout(const CompileOptions &options) {
  Layout layout;
  Result<const schedule::Generator *> generator =
      schedule::findGenerator(options.schedule);
  if (!generator.ok())
    return generator.status();
  PLAIT_RETURN_IF_ERROR(
      schedule::chooseChunks(**generator, options.chunks).status());
  PLAIT_RETURN_IF_ERROR(parseMesh(options.mesh, layout));
  for (auto [name, value] : {std::pair("global-batch", options.globalBatch),
                             {"micro-batch", options.microBatch},
                             {"seq", options.sequence}})
    if (value < 1 || value > kMostRanks)
      return fail(name, " is ", value, ", expected 1 to ", kMostRanks);
  if (!llvm::is_contained(getZeroStages(), options.zero))
    return fail("zero is ", options.zero,
                ", expected 0 to 3 (ranks of dp divide the optimizer's state, "
                "gradients, parameters)");
  int64_t filled = options.microBatch * layout.data;
  if (options.globalBatch % filled)
    return fail("global batch ", options.globalBatch,
                " is not divisible by micro batch ", options.microBatch,
                " times dp ", layout.data, " = ", filled);
  layout.microbatches = options.globalBatch / filled;
  return layout;
}

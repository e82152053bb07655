//===- Layout.cpp - The mesh of a compilation ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The four axes that --mesh can name, as numbers, as text and as an operation.
// This list is where names of axes, and their order, come from.
//
//===----------------------------------------------------------------------===//

#include "Layout.h"

#include "plait/Transforms/Names.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;

/// More ranks than any cluster has; products of sizes stay far from overflow.
static constexpr int64_t kMostRanks = int64_t(1) << 24;

namespace {
/// An axis that `--mesh` can name. `onDemand`: an axis of size 1 is not in the
/// mesh.
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

/// With size 1, axes of the usual three stay in, so that meshes of most plans
/// have the same axes.
llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> Layout::axes() const {
  llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> result;
  for (const AxisSize &axis : kAxes)
    if (!axis.onDemand || this->*axis.size > 1)
      result.push_back({axis.name, this->*axis.size});
  return result;
}

/// parseMesh() reads it back.
std::string Layout::mesh() const {
  std::string text;
  for (auto [name, size] : axes())
    text += (text.empty() ? "" : ",") + name.str() + "=" + std::to_string(size);
  return text;
}

/// Axes in any order; those that are not named have one rank. The product is
/// tested after each one, while it cannot overflow.
Result<Layout> plait::parseMesh(llvm::StringRef text) {
  Layout layout;
  if (text.empty() || text == "1")
    return layout;
  llvm::SmallVector<llvm::StringRef> entries;
  text.split(entries, ',');
  llvm::SmallVector<llvm::StringRef> seen;
  // Names and sizes are checked as they come, so that the message is of the
  // first mistake.
  for (llvm::StringRef entry : entries) {
    auto [name, size] = entry.split('=');
    if (!entry.contains('='))
      return fail("mesh \"", text.str(), "\" has no size of an axis in \"",
                  entry.str(),
                  "\", expected one such as pp=2,dp=2,tp=2; to "
                  "have the planner divide devices, give --cluster cpu:8");
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
    // At most 2^24 · 2^24 so far: no overflow.
    if (layout.ranks() > kMostRanks)
      return fail("mesh \"", text.str(), "\" has more than ", kMostRanks,
                  " ranks");
  }
  return layout;
}

std::vector<std::string> plait::findIdlePins(const ConfigurationPins &pins,
                                             const Layout &layout) {
  std::vector<std::string> lines;
  auto check = [&]<typename T>(const char *name, const std::optional<T> &pin,
                               T nothing, int64_t ranks, const char *why) {
    if (!pin || *pin == nothing || ranks > 1)
      return;
    // A flag has no value.
    std::string value = std::is_same_v<T, bool> ? "" : " " + print(*pin);
    lines.push_back("--" + std::string(name) + value +
                    " has no effect: " + why);
  };
  check("zero", pins.zero, 0, layout.data, "dp is 1");
  check("sequence-parallel", pins.sequenceParallel, false, layout.tensor,
        "tp is 1");
  check("context-parallel", pins.contextParallel, ContextParallel::Gather,
        layout.context, "cp is 1");
  check("tp-comm-overlap", pins.tensorOverlap, 1, layout.tensor, "tp is 1");
  return lines;
}

/// Through the text, so that a module's mesh has the same rules as an option.
Result<Layout> plait::getLayout(dist::MeshOp mesh) {
  return parseMesh(mesh.getText());
}

/// The symbol that shardings refer to is @mesh.
void plait::addMesh(ModuleOp module, const Layout &layout) {
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  auto axes = layout.axes();
  dist::MeshOp::create(
      builder, module.getLoc(), builder.getStringAttr("mesh"),
      builder.getStrArrayAttr(llvm::to_vector(llvm::make_first_range(axes))),
      builder.getDenseI64ArrayAttr(
          llvm::to_vector(llvm::make_second_range(axes))));
}

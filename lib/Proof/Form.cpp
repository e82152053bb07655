//===- Form.cpp - What a rank holds of a tensor ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "plait/Transforms/Names.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

Mesh::Mesh(dist::MeshOp op) {
  if (!op)
    return;
  for (auto [axis, size] :
       llvm::zip_equal(op.getAxes().getAsRange<StringAttr>(), op.getSizes()))
    if (size > 1 && axis.getValue() != kPipelineAxis)
      axes.push_back({axis.getValue(), size});
}

int64_t Mesh::getSize(StringRef axis) const {
  for (auto [name, size] : axes)
    if (name == axis)
      return size;
  return 1;
}

int64_t Mesh::countBlocks(ArrayRef<RankTerm> begin) const {
  int64_t blocks = 1;
  for (const RankTerm &term : begin)
    blocks *= getSize(term.axis);
  return blocks;
}

SmallVector<RankTerm, 2> Mesh::simplify(ArrayRef<RankTerm> begin) const {
  SmallVector<RankTerm, 2> result;
  for (const RankTerm &term : begin)
    if (getSize(term.axis) > 1)
      result.push_back(term);
  return result;
}

SmallVector<RankTerm, 2> Mesh::split(ArrayRef<StringAttr> given,
                                     int64_t chunk) const {
  SmallVector<RankTerm, 2> begin;
  for (StringAttr axis : llvm::reverse(given)) {
    begin.push_back({axis, chunk});
    chunk *= getSize(axis);
  }
  std::reverse(begin.begin(), begin.end());
  return simplify(begin);
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

bool Form::isPartialOver(StringRef axis) const {
  return llvm::any_of(partial, [&](StringAttr own) { return own == axis; });
}

int64_t Form::findDim(StringRef axis) const {
  for (auto [index, dim] : llvm::enumerate(dims))
    for (const RankTerm &term : dim.begin)
      if (term.axis == axis)
        return index;
  return -1;
}

int64_t Form::getTermDim(int64_t dim) const {
  return llvm::count_if(ArrayRef(dims).take_front(dim),
                        [](const Dimension &own) { return !own.uniform; });
}

Argument Form::asArgument() const {
  Argument argument{term, {}};
  for (auto [index, dim] : llvm::enumerate(dims))
    if (!dim.uniform)
      argument.letters.push_back(index);
  return argument;
}

bool plait::proof::isPadded(const Form &form, int64_t dim, int64_t extent,
                            const Mesh &mesh) {
  const Dimension &own = form.dims[dim];
  return !own.uniform &&
         extent * mesh.countBlocks(own.begin) > form.getExtent(dim);
}

static std::string printBegin(ArrayRef<RankTerm> begin) {
  std::string text;
  for (const RankTerm &term : begin)
    text += (text.empty() ? "" : " + ") + std::to_string(term.scale) + " · " +
            term.axis.getValue().str();
  return text;
}

std::string plait::proof::printLayout(const Form &form) {
  std::string text;
  auto add = [&](const std::string &part) {
    text += (text.empty() ? "" : ", ") + part;
  };
  for (auto [index, dim] : llvm::enumerate(form.dims))
    if (!dim.begin.empty())
      add("the slice of dimension " + std::to_string(index) + " at " +
          printBegin(dim.begin));
  if (form.isPartial()) {
    std::string axes;
    for (StringAttr axis : form.partial)
      axes += (axes.empty() ? "" : ", ") + axis.getValue().str();
    add((form.reduction == dist::Reduction::Sum ? "a partial sum over "
                                                : "a partial maximum over ") +
        axes);
  }
  return text.empty() ? "whole" : text;
}

std::string plait::proof::print(const Content &content) {
  if (!content.pack)
    return print(content.form.term) + ", " + printLayout(content.form);
  std::string text = "a pack of";
  for (const Pack::Member &member : content.pack->members)
    text += " " + member.name.str();
  if (!content.pack->rows.empty())
    text += ", its rows at " + printBegin(content.pack->rows);
  return text;
}

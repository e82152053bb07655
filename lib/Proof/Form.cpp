//===- Form.cpp - Forms of distributed tensors ----------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The arithmetic of forms: where blocks begin along the axes of a mesh, which
// dimensions a term has, and how both are printed in messages. What an op makes
// of a form is not here but in the rules (Rules.h).
// Axes with one rank and the axis of the pipeline are left out of a Mesh, so no
// form mentions them and two slices that differ only in such an axis compare
// equal.
//
//===----------------------------------------------------------------------===//

#include "Form.h"

#include "plait/Dialect/NN/IR/Names.h"
#include "plait/Interfaces/Padding.h"
#include "plait/Plan/Scalars.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

constexpr StringLiteral kChunksPrefix = "chunks ";

bool Chunks::add(const Chunks &other) {
  if (dim != other.dim || parts != other.parts)
    return false;
  SmallVector<Range> all(ranges.begin(), ranges.end());
  llvm::append_range(all, other.ranges);
  llvm::sort(all);
  ranges.clear();
  for (const Range &range : all) {
    if (ranges.empty() || ranges.back().second < range.first)
      ranges.push_back(range);
    else if (ranges.back().second == range.first)
      ranges.back().second = range.second;
    else
      return false;
  }
  return true;
}

/// No axis of a mesh has a space in its name.
StringAttr Chunks::getAxis(MLIRContext *context) const {
  std::string text = kChunksPrefix.str();
  for (const Range &range : ranges)
    text += (&range == ranges.begin() ? "" : " and ") +
            std::to_string(range.first) + " to " + std::to_string(range.second);
  return StringAttr::get(context, text + " of " + Twine(parts) +
                                      " of dimension " + Twine(dim));
}

std::optional<Chunks> Chunks::parse(StringRef axis) {
  Chunks own;
  if (!axis.consume_front(kChunksPrefix))
    return std::nullopt;
  do {
    Range &range = own.ranges.emplace_back();
    if (axis.consumeInteger(10, range.first) || !axis.consume_front(" to ") ||
        axis.consumeInteger(10, range.second))
      return std::nullopt;
  } while (axis.consume_front(" and "));
  if (!axis.consume_front(" of ") || axis.consumeInteger(10, own.parts) ||
      !axis.consume_front(" of dimension ") ||
      axis.consumeInteger(10, own.dim) || !axis.empty())
    return std::nullopt;
  return own;
}

/// Sizes are copied, so the mesh may outlive the op. Names point into its
/// attributes, which live as long as the context.
MeshSizes::MeshSizes(dist::MeshOp op) {
  if (!op)
    return;
  for (auto [axis, size] :
       llvm::zip_equal(op.getAxes().getAsRange<StringAttr>(), op.getSizes()))
    if (size > 1 && axis.getValue() != kPipelineAxis)
      axes.push_back({axis.getValue(), size});
}

int64_t MeshSizes::getSize(StringRef axis) const {
  for (auto [name, size] : axes)
    if (name == axis)
      return size;
  if (std::optional<Chunks> chunks = Chunks::parse(axis))
    return chunks->parts;
  return 1;
}

int64_t MeshSizes::countBlocks(ArrayRef<RankTerm> begin) const {
  int64_t blocks = 1;
  for (const RankTerm &term : begin)
    blocks *= getSize(term.axis);
  return blocks;
}

/// An op may count along an axis of one rank, whose index is always 0. Forms
/// have no such terms, so those of ops lose them before they are compared.
SmallVector<RankTerm, 2> MeshSizes::simplify(ArrayRef<RankTerm> begin) const {
  SmallVector<RankTerm, 2> result;
  for (const RankTerm &term : begin)
    if (getSize(term.axis) > 1)
      result.push_back(term);
  return result;
}

/// From the minor axis to the major one: a step along an axis passes over all
/// blocks of the axes below it. The result is in the order of `given`, which
/// two begins need in order to be equal.
SmallVector<RankTerm, 2> MeshSizes::split(ArrayRef<StringAttr> given,
                                          int64_t chunk) const {
  SmallVector<RankTerm, 2> begin;
  for (StringAttr axis : llvm::reverse(given)) {
    begin.push_back({axis, chunk});
    chunk *= getSize(axis);
  }
  std::reverse(begin.begin(), begin.end());
  return simplify(begin);
}

/// Then each element is in one block.
bool MeshSizes::tiles(ArrayRef<RankTerm> begin, int64_t chunk) const {
  SmallVector<RankTerm, 2> sorted(begin);
  llvm::stable_sort(sorted, [](const RankTerm &a, const RankTerm &b) {
    return a.scale < b.scale;
  });
  for (const RankTerm &term : sorted) {
    if (term.scale != chunk)
      return false;
    chunk *= getSize(term.axis);
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

bool Form::isPartialOver(StringRef axis) const {
  return llvm::any_of(partial, [&](StringAttr own) { return own == axis; });
}

void Form::dropOwner() {
  llvm::erase_if(partial, [&](StringAttr axis) {
    return llvm::any_of(
        owner->begin, [&](const RankTerm &term) { return term.axis == axis; });
  });
  if (isDispatched())
    reduction = dist::Reduction::Sum;
  owner.reset();
}

bool Owner::covers(const Owner &other) const {
  if (ids != other.ids || begin != other.begin || extent != other.extent ||
      dims.size() != other.dims.size())
    return false;
  return llvm::all_of(llvm::zip_equal(dims, other.dims), [](auto pair) {
    auto [own, others] = pair;
    return own == others || own == kAny;
  });
}

/// There is at most one: Rules::checkAxes() refuses a form in which an axis
/// occurs twice.
int64_t Form::findDim(StringRef axis) const {
  for (auto [index, dim] : llvm::enumerate(dims))
    for (const RankTerm &term : dim.begin)
      if (term.axis == axis)
        return index;
  return -1;
}

/// The term has no uniform dimensions, so those before `dim` are not counted.
/// Of a uniform `dim` the answer would be that of the next one.
int64_t Form::getTermDim(int64_t dim) const {
  return llvm::count_if(ArrayRef(dims).take_front(dim),
                        [](const Dimension &own) { return !own.uniform; });
}

/// The result is what the other one is where one has equal elements.
bool Dimension::join(const Dimension &other, int64_t size) {
  if (other.fitsAll())
    return true;
  if (!fitsAll() && (!liesAs(other) || extent != size))
    return false;
  if (uniform)
    *this = other;
  extent = size;
  return true;
}

void Form::setTerm(Expression expression) {
  term = expression.term;
  for (auto [index, dim] : llvm::enumerate(dims)) {
    dim.uniform = !llvm::is_contained(expression.letters, int(index));
    if (!dim.uniform)
      dim.extent = 0;
  }
  if (term->isZero()) {
    if (isDispatched())
      reduction = dist::Reduction::Sum;
    partial.clear();
    owner.reset();
  }
}

/// Uniform dimensions are letters that the argument does not name: it is
/// repeated along them, which costs no term.
Argument Form::asArgument() const {
  Argument argument{term, {}};
  for (auto [index, dim] : llvm::enumerate(dims))
    if (!dim.uniform)
      argument.letters.push_back(index);
  return argument;
}

/// Blocks are equally large, so the last ones reach beyond the end where their
/// number does not divide the extent. A dimension that fits all has no end to
/// reach beyond: padding has the same number.
bool plait::proof::isPadded(const Form &form, int64_t dim, int64_t extent,
                            const MeshSizes &mesh) {
  const Dimension &own = form.dims[dim];
  return !own.fitsAll() &&
         extent * mesh.countBlocks(own.begin) > form.getExtent(dim);
}

/// Padding of one that is not known to be that number is something else.
void plait::proof::simplify(Form &form, RankedTensorType type,
                            const MeshSizes &mesh) {
  std::optional<double> number = form.term->getNumber();
  for (auto [index, dim] : llvm::enumerate(form.dims))
    if (dim.uniform && (!isPadded(form, index, type.getDimSize(index), mesh) ||
                        (number && dim.padding.is(*number))))
      dim = Dimension();
}

bool plait::proof::isDivisorBound(const Term *term) {
  return term->kind == Term::Leaf && term->name == "Epsilon";
}

/// The divisor's lower bound is known of what the trainer sets.
NumberRange plait::proof::getUniform(const Content &operand) {
  const Term *term = operand.form.term;
  // Of a partial sum each rank has any part.
  if (std::optional<double> number = term->getNumber();
      number && (*number == 0 || !operand.form.isPartial()))
    return NumberRange::exactly(*number);
  NumberRange range = getUnpadded(operand.type);
  if (isDivisorBound(term))
    range.low = plan::kLeastEpsilon;
  return range;
}

/// "64 · dp + 16 · tp".
static std::string printBegin(ArrayRef<RankTerm> begin) {
  std::string text;
  for (const RankTerm &term : begin)
    text += (text.empty() ? "" : " + ") + std::to_string(term.scale) + " · " +
            term.axis.getValue().str();
  return text;
}

/// The grammar fits "it is …" and "takes …, …" in the messages of the rules.
std::string plait::proof::printLayout(const Form &form) {
  std::string text;
  auto add = [&](const std::string &part) {
    text += (text.empty() ? "" : ", ") + part;
  };
  for (auto [index, dim] : llvm::enumerate(form.dims)) {
    if (!dim.begin.empty())
      add("the slice of dimension " + std::to_string(index) + " at " +
          printBegin(dim.begin) +
          (dim.rounds > 1 ? " in " + std::to_string(dim.rounds) + " rounds"
                          : ""));
    if (dim.chunks)
      add("dimension " + std::to_string(index) + " as " +
          std::to_string(dim.chunks) + " chunks in zig-zag order");
  }
  if (form.isPartial()) {
    std::string axes;
    for (StringAttr axis : form.partial)
      axes += (axes.empty() ? "" : ", ") + axis.getValue().str();
    add((form.isDispatched() ? "the tokens of a rank's experts over "
         : form.owner        ? "the rows of a rank's experts over "
         : form.reduction == dist::Reduction::Sum ? "a partial sum over "
                                                  : "a partial maximum over ") +
        axes);
  }
  return text.empty() ? "whole" : text;
}

/// Members of a pack are only named: their terms would fill pages.
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

//===- Repeat.cpp - Ops that repeat what others have done -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A recipe is the list of calls of an op's rule that have made terms, whose
// arguments are numbers of nodes: terms of operands, and results of calls
// before. It is followed for an op with the same name, properties and types,
// whose operands lie as those did. It fails, and the rule is asked, if what a
// call gives is not like what it gave: another shape, other letters, another
// number, or a term that is one with another node, or no longer is.
//
// A layout is all of a content but the term, of which it has shape and number.
// Packs, rows that belong to experts and lists of summands have none: their
// contents have other terms.
//
//===----------------------------------------------------------------------===//

#include "Repeat.h"

#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/PlanIR.h"

using namespace mlir;
using namespace plait;
using namespace plait::proof;

/// The layout of what has none that others may share.
static constexpr unsigned kNoLayout = ~0u;

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

Expression Terms::make(const Call &call) {
  switch (call.kind) {
  case Call::Leaf:
    return {leaf(call.name, call.extents), {}};
  case Call::One:
    return {one(), {}};
  case Call::Sum:
    return sum(call.arguments);
  case Call::Product:
    return product(call.arguments, call.factor);
  case Call::Apply:
    return apply(call.name, call.attrs, call.arguments, call.result,
                 call.extents);
  case Call::Linear:
    return applyLinear(call.name, call.attrs, call.arguments, call.result,
                       call.extents);
  case Call::AddUp:
    return reduceSum(call.arguments[0], call.result);
  case Call::Maximum:
    return reduceMaximum(call.arguments[0], call.result);
  case Call::Cast:
    return cast(call.arguments[0], llvm::cast<mlir::TypeAttr>(call.attrs));
  }
  llvm_unreachable("no other call");
}

/// The caller's name may not live as long as the call.
Expression Terms::note(Call call) {
  if (!call.name.empty())
    call.name = names.insert(call.name).first->getKey();
  std::vector<Call> *own = std::exchange(noted, nullptr);
  call.made = make(call);
  noted = own;
  return noted->emplace_back(std::move(call)).made;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

static bool isEqual(const NumberRange &a, const NumberRange &b) {
  return a.low == b.low && a.high == b.high && a.special == b.special;
}

static bool isEqual(const Dimension &a, const Dimension &b) {
  return a.uniform == b.uniform && a.begin == b.begin &&
         isEqual(a.padding, b.padding) && a.chunks == b.chunks &&
         a.rounds == b.rounds && a.extent == b.extent;
}

/// The one leaf whose name a rule looks at is a layout of its own.
static bool liesAlike(const Content &a, const Content &b) {
  const Term *own = a.form.term, *other = b.form.term;
  return a.type == b.type && a.form.partial == b.form.partial &&
         a.form.reduction == b.form.reduction && own->shape == other->shape &&
         own->getNumber() == other->getNumber() &&
         isDivisorBound(own) == isDivisorBound(other) &&
         llvm::equal(a.form.dims, b.form.dims,
                     [](const Dimension &x, const Dimension &y) {
                       return isEqual(x, y);
                     });
}

static size_t computeHash(const Content &content) {
  llvm::hash_code hash = llvm::hash_combine(
      content.type, content.form.dims.size(), content.form.partial.size());
  for (const Dimension &dim : content.form.dims)
    hash = llvm::hash_combine(
        hash, dim.uniform, dim.extent,
        llvm::hash_combine_range(dim.begin.begin(), dim.begin.end()));
  return hash;
}

unsigned Repeats::findLayout(const Content &content) {
  if (content.pack || content.summands || content.form.owner ||
      !content.form.term)
    return kNoLayout;
  size_t hash = computeHash(content);
  auto [begin, end] = layoutsByHash.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (liesAlike(*layouts[it->second - 1], content))
      return it->second;
  auto *own = new (kept.Allocate()) Content(content);
  own->writer = nullptr;
  layouts.push_back(own);
  layoutsByHash.emplace(hash, layouts.size());
  return layouts.size();
}

/// Asks for the layouts of all operands; false: one has none.
bool Repeats::askLayouts(ArrayRef<Known *> operands) {
  for (Known *operand : operands) {
    if (operand->layout == 0)
      operand->layout = findLayout(*operand->content);
    if (operand->layout == kNoLayout)
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

/// Attributes that rules do not read: where an op comes from (`plait.origin`,
/// too), and where its results lie, which is shown apart (Places.h).
static bool saysNothing(StringRef name) {
  return name == nn::kLayerAttr || name == nn::kBackwardAttr ||
         name == plan::kPlacesAttr || name.starts_with("plait.");
}

/// Compares what stands beside properties, which is all where there are none.
static bool haveSameAttrs(Operation *a, Operation *b) {
  DictionaryAttr own = a->getRawDictionaryAttrs(),
                 other = b->getRawDictionaryAttrs();
  if (own == other)
    return true;
  auto all = [](DictionaryAttr attrs) {
    return llvm::make_filter_range(attrs, [](NamedAttribute attr) {
      return !saysNothing(attr.getName().getValue());
    });
  };
  return llvm::equal(all(own), all(other));
}

/// Whether both compute the same, of operands that are the same.
static bool areAlike(Operation *a, Operation *b) {
  return a->getName() == b->getName() &&
         llvm::equal(a->getResultTypes(), b->getResultTypes()) &&
         llvm::equal(a->getOperandTypes(), b->getOperandTypes()) &&
         a->getName().compareOpProperties(a->getPropertiesStorage(),
                                          b->getPropertiesStorage()) &&
         haveSameAttrs(a, b);
}

bool Repeats::fits(const Recipe &recipe, Operation *op,
                   ArrayRef<Known *> operands) const {
  if (recipe.layouts.size() != operands.size() || !areAlike(recipe.op, op))
    return false;
  for (auto [index, operand] : llvm::enumerate(operands)) {
    if (recipe.layouts[index] != operand->layout)
      return false;
    for (size_t before = 0; before < index; ++before)
      if ((recipe.nodes[before].first == recipe.nodes[index].first) !=
          (operands[before]->term == operand->term))
        return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Recipes
//===----------------------------------------------------------------------===//

/// Makes the terms of all nodes; false: one is not as it was.
bool Repeats::follow(Recipe &recipe, ArrayRef<Known *> operands,
                     SmallVectorImpl<const Term *> &made) {
  for (const Known *operand : operands)
    made.push_back(operand->term);
  for (Step &step : recipe.steps) {
    const Node &node = recipe.nodes[made.size()];
    for (auto [argument, from] :
         llvm::zip_equal(step.call.arguments, step.arguments))
      argument.term = made[from];
    Expression own = terms.make(step.call);
    const auto *first = llvm::find(made, own.term);
    if (size_t(first - made.begin()) != node.first ||
        own.letters != node.letters || own.term->shape != node.shape ||
        own.term->getNumber() != node.number)
      return false;
    made.push_back(own.term);
  }
  return true;
}

bool Repeats::repeat(Operation *op, ArrayRef<Known *> operands,
                     SmallVectorImpl<Known> &results) {
  isKnowable = op->getNumRegions() == 0 && askLayouts(operands);
  if (!isKnowable)
    return false;
  llvm::hash_code code = llvm::hash_combine(op->getName().getAsOpaquePointer(),
                                            op->hashProperties());
  for (const Known *operand : operands)
    code = llvm::hash_combine(code, operand->layout);
  for (Type type : op->getResultTypes())
    code = llvm::hash_combine(code, type);
  hash = code;
  auto [begin, end] = recipes.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    Recipe &recipe = it->second;
    SmallVector<const Term *> made;
    if (!fits(recipe, op, operands) || !follow(recipe, operands, made))
      continue;
    for (const Result &result : recipe.results)
      results.push_back(
          {layouts[result.layout - 1], made[result.node], result.layout});
    return true;
  }
  return false;
}

/// Nothing is learnt of a rule that takes a term from elsewhere.
void Repeats::end(Operation *op, ArrayRef<Known *> operands,
                  ArrayRef<Content> results, bool isPlain) {
  terms.note(nullptr);
  std::vector<Terms::Call> given = std::exchange(calls, {});
  if (!isKnowable || !isPlain)
    return;
  Recipe recipe{op, {}, {}, {}, {}};
  SmallVector<const Term *> made;
  auto find = [&](const Term *term) {
    return unsigned(llvm::find(made, term) - made.begin());
  };
  auto add = [&](const Term *term, Letters letters) {
    recipe.nodes.push_back({find(term), std::move(letters), term->getNumber(),
                            SmallVector<int64_t, 4>(term->shape)});
    made.push_back(term);
  };
  for (const Known *operand : operands) {
    recipe.layouts.push_back(operand->layout);
    add(operand->term, {});
  }
  for (Terms::Call &call : given) {
    Step &step = recipe.steps.emplace_back();
    for (const Argument &argument : call.arguments) {
      step.arguments.push_back(find(argument.term));
      if (step.arguments.back() == made.size())
        return;
    }
    add(call.made.term, call.made.letters);
    step.call = std::move(call);
  }
  for (const Content &result : results) {
    unsigned layout = result.writer ? kNoLayout : findLayout(result);
    unsigned node = layout == kNoLayout ? 0 : find(result.form.term);
    if (layout == kNoLayout || node == made.size())
      return;
    recipe.results.push_back({layout, node});
  }
  recipes.emplace(hash, std::move(recipe));
}

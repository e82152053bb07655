//===- StepEnd.cpp - What a step ends with, by parameter ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepEnd.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace plait;

static FlatSymbolRefAttr symbolOf(nn::ParameterOp parameter) {
  return FlatSymbolRefAttr::get(parameter.getSymNameAttr());
}

//===----------------------------------------------------------------------===//
// Accesses
//===----------------------------------------------------------------------===//

StepEndAnalysis::StepEndAnalysis(ArrayRef<func::FuncOp> functions,
                                 func::FuncOp reduce, func::FuncOp optimizer)
    : reduceAccesses(collect(reduce)), updateAccesses(collect(optimizer)) {
  llvm::for_each(functions,
                 [&](func::FuncOp function) { addAccesses(function); });
}

/// Notes the types of what `function` reads and stores.
void StepEndAnalysis::addAccesses(func::FuncOp function) {
  auto add = [&](FlatSymbolRefAttr symbol, nn::Slot slot, Type access) {
    auto type = cast<RankedTensorType>(access).clone(
        Float32Type::get(function.getContext()));
    auto [known, isNew] = types.try_emplace(symbol, type);
    if (!isNew && known->second != type)
      known->second = {};
    copies[symbol] |= slot == nn::Slot::Compute;
  };
  function.walk([&](Operation *op) {
    llvm::TypeSwitch<Operation *>(op)
        .Case([&](nn::ReadOp read) {
          add(read.getSymbolAttr(), read.getSlot(), read.getType());
        })
        .Case<nn::WriteOp, nn::AccumulateOp>([&](auto store) {
          add(store.getSymbolAttr(), store.getSlot(),
              store.getInput().getType());
        });
  });
}

llvm::DenseMap<Attribute, StepEndAnalysis::Accesses>
StepEndAnalysis::collect(func::FuncOp function) {
  llvm::DenseMap<Attribute, Accesses> accesses;
  function.walk([&](nn::ReadOp read) {
    accesses[read.getSymbolAttr()].reads.push_back(read);
  });
  function.walk([&](nn::WriteOp write) {
    accesses[write.getSymbolAttr()].writes.push_back(write);
  });
  return accesses;
}

bool StepEndAnalysis::holds(nn::ParameterOp parameter) const {
  return types.contains(symbolOf(parameter));
}

std::optional<ParameterEnd>
StepEndAnalysis::analyze(nn::ParameterOp parameter) {
  ParameterEnd end;
  end.parameter = parameter;
  end.type = types.lookup(symbolOf(parameter));
  // A number would be taken for one that all parameters share.
  if (!end.type || end.type.getRank() == 0 || !readReductions(end))
    return std::nullopt;
  readNorm(end);
  readUpdate(end);
  end.hasCopy = copies.lookup(symbolOf(parameter));
  if (end.hasCopy)
    end.key += " copy";
  return end;
}

//===----------------------------------------------------------------------===//
// Reductions and norms
//===----------------------------------------------------------------------===//

/// Whether the gradient is reduced by nothing but all-reduces.
bool StepEndAnalysis::readReductions(ParameterEnd &end) {
  Accesses &accesses = reduceAccesses[symbolOf(end.parameter)];
  if (accesses.reads.empty() && accesses.writes.empty())
    return true;
  if (accesses.reads.size() != 1 || accesses.writes.size() != 1)
    return false;
  nn::ReadOp read = accesses.reads.front();
  Value value = accesses.writes.front().getInput();
  while (auto reduction = value.getDefiningOp<dist::AllReduceOp>()) {
    if (!reduction->hasOneUse())
      return false;
    end.reductions.insert(end.reductions.begin(), reduction);
    value = reduction.getInput();
  }
  if (value != read.getResult() || !read->hasOneUse() ||
      read.getSlot() != nn::Slot::Gradient)
    return false;
  if (end.reductions.empty())
    return true;
  end.reduced = accesses.writes.front();
  llvm::raw_string_ostream key(end.key);
  for (dist::AllReduceOp reduction : end.reductions) {
    key << reduction.getAxis() << ' '
        << dist::stringifyReduction(reduction.getReduction()) << ' ';
    // Other programs take part: what is packed with it must not depend on
    // what else a stage has.
    if (reduction.getOrdered() || reduction.getMembers())
      key << end.parameter.getSymName() << ' ';
  }
  return true;
}

/// The sum over all dimensions that `value` goes into and nothing else, or
/// null.
static Value findTotal(Value value) {
  while (cast<RankedTensorType>(value.getType()).getRank()) {
    if (!value.hasOneUse())
      return {};
    auto reduce = dyn_cast<nn::ReduceOp>(*value.user_begin());
    if (!reduce || reduce.getKind() != nn::ReduceKind::Sum)
      return {};
    value = reduce.getResult();
  }
  return value;
}

void StepEndAnalysis::readNorm(ParameterEnd &end) {
  for (nn::ReadOp read : updateAccesses[symbolOf(end.parameter)].reads)
    for (Operation *user : read->getUsers()) {
      auto square = dyn_cast<nn::MulOp>(user);
      if (read.getSlot() == nn::Slot::Gradient && square && !end.norm &&
          square.getLhs() == square.getRhs())
        end.norm = findTotal(square);
    }
  if (!end.norm)
    return;
  // Which sum it goes into: others may still have to be reduced over an axis.
  Value sum = end.norm;
  while (sum.hasOneUse() && isa<nn::AddOp>(*sum.user_begin()))
    sum = (*sum.user_begin())->getResult(0);
  end.key += "norm " + std::to_string(numberOf(sum)) + " ";
}

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

namespace plait {
/// Writes down the expressions that are stored to one parameter.
class UpdateReader {
public:
  UpdateReader(StepEndAnalysis &analysis, const ParameterEnd &end)
      : analysis(analysis), end(end), out(text) {}

  bool add(nn::WriteOp write) {
    stores.insert(write);
    if (!add(write.getInput()))
      return false;
    out << nn::stringifySlot(write.getSlot()) << " = "
        << ids.lookup(write.getInput()) << ' ';
    return true;
  }

  /// Whether these expressions are all that the parameter is used for, apart
  /// from its norm.
  bool isComplete(ArrayRef<nn::ReadOp> reads) {
    auto isOwn = [&](Operation *user) {
      if (ops.contains(user) || stores.contains(user))
        return true;
      return user->getNumResults() == 1 && end.norm &&
             findTotal(user->getResult(0)) == end.norm;
    };
    for (Operation *op : ops)
      if (!isShared(op) && !llvm::all_of(op->getUsers(), isOwn))
        return false;
    return llvm::all_of(reads, [&](nn::ReadOp read) {
      return llvm::all_of(read->getUsers(), isOwn);
    });
  }

  std::string take() { return std::move(text); }

private:
  /// Parameters of one shape may use it together.
  static bool isShared(Operation *op) {
    return isa<nn::BroadcastOp, nn::FillOp>(op);
  }

  bool add(Value value) {
    if (ids.contains(value))
      return true;
    auto type = cast<RankedTensorType>(value.getType());
    Operation *op = value.getDefiningOp();
    if (!op || type.getShape() != end.type.getShape())
      return false;
    std::string operands;
    llvm::raw_string_ostream list(operands);
    if (auto broadcast = dyn_cast<nn::BroadcastOp>(op)) {
      if (!broadcast.getDims().empty())
        return false;
      list << '$' << analysis.numberOf(broadcast.getInput());
    } else if (auto read = dyn_cast<nn::ReadOp>(op)) {
      if (read.getSymbolAttr() != symbolOf(end.parameter))
        return false;
      list << nn::stringifySlot(read.getSlot());
    } else if (isShared(op) || op->hasTrait<OpTrait::Elementwise>()) {
      for (Value operand : op->getOperands()) {
        if (!add(operand))
          return false;
        list << ids.lookup(operand) << ' ';
      }
      list << op->getPropertiesAsAttribute();
    } else {
      return false;
    }
    ops.insert(op);
    out << op->getName() << ' ' << operands << ' ' << type.getElementType()
        << ' ';
    ids.try_emplace(value, ids.size());
    return true;
  }

  StepEndAnalysis &analysis;
  const ParameterEnd &end;
  llvm::DenseMap<Value, unsigned> ids;
  llvm::SetVector<Operation *> ops;
  llvm::DenseSet<Operation *> stores;
  std::string text;
  llvm::raw_string_ostream out;
};
} // namespace plait

void StepEndAnalysis::readUpdate(ParameterEnd &end) {
  const Accesses &accesses = updateAccesses[symbolOf(end.parameter)];
  UpdateReader reader(*this, end);
  for (nn::WriteOp write : accesses.writes)
    if (!reader.add(write))
      return;
  if (!reader.isComplete(accesses.reads))
    return;
  end.updates = accesses.writes;
  end.key += reader.take();
}

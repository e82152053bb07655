//===- ClusterStructure.cpp - What equal clusters have in common ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/ClusterStructure.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Interfaces/OpInterfaces.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace plait;

/// Properties but what a call gives.
/// What the call gives is passed as a scalar, so that it may differ.
static void printStructure(Operation *op, llvm::raw_ostream &out) {
  auto fusable = dyn_cast<FusableOpInterface>(op);
  StringRef call = fusable ? fusable.getCallAttrName() : StringRef();
  auto properties =
      dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
  if (!properties)
    return;
  for (NamedAttribute attribute : properties)
    if (attribute.getName() != call)
      out << attribute.getName().getAsOpaquePointer() << ' '
          << attribute.getValue().getAsOpaquePointer() << ' ';
}

/// The body, its values numbered. It must tell apart all that changes the code:
/// types and shapes of operands and results, the pitch of rows in memory, what
/// is sorted behind tokens, every op with its properties, and how results
/// accumulate. It takes time linear in the cluster. Types and attributes are
/// named by their addresses: the context has each of them once.
std::string plait::describeStructure(plan::ClusterOp cluster) {
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::DenseMap<Value, unsigned> numbers;
  auto define = [&](Value value) {
    unsigned number = numbers.size();
    numbers[value] = number;
    out << value.getType().getAsOpaquePointer() << ' ';
  };
  Block &body = cluster.getBody().front();
  llvm::for_each(body.getArguments(), define);
  for (Value stored :
       llvm::concat<Value>(llvm::to_vector_of<Value>(body.getArguments()),
                           llvm::to_vector_of<Value>(cluster.getResults())))
    out << plan::getRowPitch(stored) << ' ';
  for (BlockArgument argument : body.getArguments())
    out << plan::getSortedEntries(argument) << ' ';
  for (Operation &op : body) {
    out << op.getName().getAsOpaquePointer() << ' ';
    printStructure(&op, out);
    for (Value operand : op.getOperands())
      out << ' ' << numbers.lookup(operand);
    llvm::for_each(op.getResults(), define);
    out << '\n';
  }
  for (unsigned result = 0; result < cluster.getNumResults(); ++result)
    out << (cluster.getAccumulate() ? (*cluster.getAccumulate())[result] : 0);
  return text;
}

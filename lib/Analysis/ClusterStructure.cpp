//===- ClusterStructure.cpp - What equal clusters have in common ----------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Analysis/ClusterStructure.h"

#include "plait/Dialect/Plan/IR/RowPitch.h"
#include "plait/Interfaces/OpInterfaces.h"

#include <type_traits>

using namespace mlir;
using namespace plait;

namespace {

/// A list of words as a string. Text would take most of the time: every cluster
/// is asked for its key.
class Key {
public:
  template <typename Word> void add(Word word) {
    static_assert(std::is_trivially_copyable_v<Word>);
    bytes.append(reinterpret_cast<const char *>(&word), sizeof(word));
  }
  std::string take() { return std::move(bytes); }

private:
  std::string bytes;
};

} // namespace

/// Properties but what a call gives.
/// What the call gives is passed as a scalar, so that it may differ.
static void addProperties(Operation *op, Key &key) {
  // Of most there are none, and to ask for them makes a dictionary.
  if (op->getPropertiesStorageSize() == 0)
    return;
  auto properties =
      dyn_cast_or_null<DictionaryAttr>(op->getPropertiesAsAttribute());
  if (!properties)
    return;
  auto fusable = dyn_cast<FusableOpInterface>(op);
  StringRef call = fusable ? fusable.getCallAttrName() : StringRef();
  for (NamedAttribute attribute : properties)
    if (attribute.getName() != call) {
      key.add(attribute.getName().getAsOpaquePointer());
      key.add(attribute.getValue().getAsOpaquePointer());
    }
}

/// The body, its values numbered. It must tell apart all that changes the code:
/// types and shapes of operands and results, the pitch of rows in memory, what
/// is sorted behind tokens, every op with its properties, and how results
/// accumulate. It takes time linear in the cluster. Types and attributes are
/// named by their addresses: the context has each of them once. Where a list
/// may end its length or a null stands, so that no two clusters share a key.
std::string plait::describeStructure(plan::ClusterOp cluster) {
  Key key;
  llvm::DenseMap<Value, unsigned> numbers;
  auto define = [&](Value value) {
    numbers.try_emplace(value, numbers.size());
    key.add(value.getType().getAsOpaquePointer());
  };
  Block &body = cluster.getBody().front();
  key.add(body.getNumArguments());
  for (BlockArgument argument : body.getArguments()) {
    define(argument);
    key.add(plan::getRowPitch(argument));
    key.add(plan::getSortedEntries(argument));
  }
  key.add(cluster.getNumResults());
  for (Value result : cluster.getResults())
    key.add(plan::getRowPitch(result));
  for (Operation &op : body) {
    key.add(op.getName().getAsOpaquePointer());
    addProperties(&op, key);
    key.add<const void *>(nullptr);
    key.add(op.getNumOperands());
    for (Value operand : op.getOperands())
      key.add(numbers.lookup(operand));
    llvm::for_each(op.getResults(), define);
  }
  for (unsigned result = 0; result < cluster.getNumResults(); ++result)
    key.add(cluster.getAccumulate() ? (*cluster.getAccumulate())[result] : 0);
  return key.take();
}

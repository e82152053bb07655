//===- Slot.h - A tensor that belongs to a parameter ------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_DIALECT_NN_IR_SLOT_H
#define PLAIT_DIALECT_NN_IR_SLOT_H

#include "llvm/ADT/DenseMapInfo.h"
#include "llvm/ADT/StringRef.h"

#include <tuple>

namespace plait::nn {

/// A tensor that belongs to a parameter: one of four that each may have, or
/// what its optimizer keeps of it, by name. Lives as long as the name, which is
/// of an attribute or a literal.
class Slot {
public:
  enum Kind { Value, Gradient, State, Compute, Reduced };

  /// One of the four; not `State`.
  constexpr Slot(Kind kind) : kind(kind) {}
  static constexpr Slot getState(llvm::StringRef name) {
    return Slot(State, name);
  }
  /// The slot that IR calls `name`: a state where it is none of the four.
  static Slot get(llvm::StringRef name) {
    for (Kind kind : {Value, Gradient, Compute, Reduced})
      if (Slot(kind).getName() == name)
        return kind;
    return getState(name);
  }

  llvm::StringRef getName() const {
    switch (kind) {
    case Value:
      return "value";
    case Gradient:
      return "gradient";
    case State:
      return name;
    case Compute:
      return "compute";
    case Reduced:
      return "reduced";
    }
    return {};
  }
  /// Whether an optimizer keeps it.
  bool isState() const { return kind == State; }

  friend bool operator==(Slot a, Slot b) {
    return a.kind == b.kind && a.name == b.name;
  }
  friend bool operator<(Slot a, Slot b) {
    return std::tie(a.kind, a.name) < std::tie(b.kind, b.name);
  }

private:
  constexpr Slot(Kind kind, llvm::StringRef name) : kind(kind), name(name) {}

  Kind kind;
  llvm::StringRef name; // of a state
};

} // namespace plait::nn

namespace llvm {
/// Slots as keys of maps, by their names.
template <> struct DenseMapInfo<plait::nn::Slot> {
  using Slot = plait::nn::Slot;
  static Slot getEmptyKey() {
    return Slot::getState(DenseMapInfo<StringRef>::getEmptyKey());
  }
  static Slot getTombstoneKey() {
    return Slot::getState(DenseMapInfo<StringRef>::getTombstoneKey());
  }
  static unsigned getHashValue(Slot slot) {
    return DenseMapInfo<StringRef>::getHashValue(slot.getName());
  }
  static bool isEqual(Slot a, Slot b) {
    return DenseMapInfo<StringRef>::isEqual(a.getName(), b.getName());
  }
};
} // namespace llvm

#endif // PLAIT_DIALECT_NN_IR_SLOT_H

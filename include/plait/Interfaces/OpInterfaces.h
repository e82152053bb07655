//===- OpInterfaces.h - Interfaces that passes rely on ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// C++ face of OpInterfaces.td, and the types that its methods pass around.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_INTERFACES_OPINTERFACES_H
#define PLAIT_INTERFACES_OPINTERFACES_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "plait/Interfaces/FactorRule.h"
#include "plait/Support/ChunkOrder.h"
#include "plait/Support/Status.h"
#include <optional>
#include <vector>

namespace plait {

/// The shape of an op's arithmetic, for cost models that know how fast each
/// shape is computed. Sizes are those of the op's present types.
struct WorkShape {
  enum Kind {
    Memory,      // as fast as its operands and results move
    Contraction, // batch x (m x k) . (k x n)
    Attention,   // softmax(q kᵀ) v, or its gradients
  } kind = Memory;
  int64_t batch = 1, m = 1, n = 1, k = 1;
  int64_t heads = 0, keyValueHeads = 0, headSize = 0, queries = 0, keys = 0;
  bool causal = true; // a query sees no key after it
};

/// The term that the index of a rank along a mesh axis adds to a number: scale
/// · index.
struct RankTerm {
  mlir::StringAttr axis;
  int64_t scale;

  bool operator==(const RankTerm &) const = default;
  friend llvm::hash_code hash_value(const RankTerm &term) {
    return llvm::hash_combine(term.axis, term.scale);
  }
};

/// How a fusable op maps the iteration space of a kernel.
enum class FusionRole {
  /// result[i] depends on operands[i], and possibly on i itself.
  Elementwise,
  /// result[i] = operand[i without the new dimensions].
  Broadcast,
  /// Sum or maximum over some dimensions; emitElement gives the summand.
  ReduceSum,
  ReduceMax,
  /// result[…, j] = operand0[operand1[…], j]; rows out of range are zero.
  Gather,
  /// result[r, j] = sum of operand0[i, j] over all i with operand1[i] == r;
  /// rows of padding get nothing.
  ScatterAdd,
  /// result[i] depends on operand0[map(i)] and on the other operands[i]; the op
  /// says which map, see IndexMap.
  Reindex,
  /// A row of the result depends on the same rows of the operands in a way that
  /// no sweep over it computes: the op emits it (emitRow), and has a kernel of
  /// its own. A row is the last dimension, which may have another extent in
  /// each; all others agree.
  Rows,
};

/// The facts that passes ask of a role, beside how it maps dimensions and is
/// emitted; none of an op that is not fusable.
struct RoleFacts {
  bool elementwise = false; // has one element of each operand for each own
  bool repeats = false;     // its operand along new dimensions
  bool reduces = false;     // some dimensions of its operand
  bool adds = false;        // up, what it reduces
  bool maps = false;        // has an IndexMap
  /// Reads its first operand in memory, at other indices than its own, and no
  /// more elements of it than it has itself.
  bool readsMemory = false;
  bool scatters = false; // writes at other indices
  bool ownsRows = false; // emits rows as a whole, alone in its kernel
};

constexpr RoleFacts getFacts(FusionRole role) {
  switch (role) {
  case FusionRole::Elementwise:
    return {.elementwise = true};
  case FusionRole::Broadcast:
    return {.repeats = true};
  case FusionRole::ReduceSum:
    return {.reduces = true, .adds = true};
  case FusionRole::ReduceMax:
    return {.reduces = true};
  case FusionRole::Gather:
    return {.readsMemory = true};
  case FusionRole::Reindex:
    return {.maps = true, .readsMemory = true};
  case FusionRole::ScatterAdd:
    return {.scatters = true};
  case FusionRole::Rows:
    return {.ownsRows = true};
  }
  return {};
}

/// Which elements of its first operand an op of role Reindex reads: those at
/// its own indices but along one dimension, where they lie in a few runs. This
/// is all that analysis, code generation and padding know of the op's pattern.
struct IndexMap {
  /// Indices from the end of the piece before, or 0, to `end`.
  struct Piece {
    int64_t end;
    int64_t shift;        // added to an index, the operand's
    bool negated = false; // the numbers that are read
  };

  /// The number that FusableOpInterface's getRankBegin() is added to: nothing;
  /// an index of the rank, so that pieces count from the beginning of the
  /// whole; the index that is read, so that they count from that of the rank.
  enum class Begin : uint8_t { None, Index, Read };

  int64_t dim = 0;
  /// Ascending, at least one; from the last end on is zero.
  llvm::SmallVector<Piece, 2> pieces;
  Begin begin = Begin::None;

  /// Whether all of a rank's `extent` indices are in pieces.
  bool covers(int64_t extent) const {
    return begin != Begin::Index && pieces.back().end >= extent;
  }
  /// One run of neighbours, as they are.
  bool isBlock() const { return pieces.size() == 1 && !pieces[0].negated; }
};

/// Everything that an op can ask for while its element is emitted.
class ElementContext {
public:
  virtual ~ElementContext() = default;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// The number of neighbours emitted at once: 1 means scalars.
  virtual int64_t getLanes() const = 0;
  /// The index along dimension `dim` of the op's iteration space (its first
  /// operand's for reductions, its result's otherwise), as i32: a scalar, or a
  /// vector of getLanes() lanes for the innermost dimension.
  virtual mlir::Value getIndex(int64_t dim) = 0;
  /// A constant of `type` (f32 or i32) in the shape of the current lanes.
  virtual mlir::Value getConstant(mlir::Attribute scalar) = 0;
  /// The sum of `terms` on the rank, as i32, in the shape of the current lanes.
  virtual mlir::Value getRankValue(llvm::ArrayRef<RankTerm> terms) = 0;
  /// The value of the op's attribute that FusableOpInterface::getCallAttrName
  /// names, as i32, in the shape of the current lanes.
  virtual mlir::Value getCallValue() = 0;

protected:
  ElementContext(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}
};

/// One row of an op that emits it as a whole. Columns are i64.
class RowContext {
public:
  virtual ~RowContext() = default;

  mlir::OpBuilder &builder;
  mlir::Location loc;

  /// The number of neighbours that a vector has.
  virtual int64_t getLanes() const = 0;
  /// The elements of an operand from `column` on, `lanes` of them: all have to
  /// be of the row. One is a scalar.
  virtual mlir::Value load(unsigned operand, mlir::Value column,
                           int64_t lanes) = 0;
  /// Stores a scalar or a vector of the result from `column` on.
  virtual void store(mlir::Value elements, mlir::Value column) = 0;

protected:
  RowContext(mlir::OpBuilder &builder, mlir::Location loc)
      : builder(builder), loc(loc) {}
};

/// An op whose result jumps where its operands, floats, are equal or not.
/// Passes keep it from depending on how operands were rounded: it is done once,
/// in the forward pass, and of numbers as they are stored. So a gradient that
/// selects by it selects what the forward pass did, whatever is computed again,
/// fused, or held in fewer bits.
template <typename ConcreteType>
class ComparesFloats
    : public mlir::OpTrait::TraitBase<ConcreteType, ComparesFloats> {};

/// An op whose result is the sum of its two operands, element by element.
template <typename ConcreteType>
class AddsOperands
    : public mlir::OpTrait::TraitBase<ConcreteType, AddsOperands> {};

/// An op whose result is its operand, of which there is no gradient.
template <typename ConcreteType>
class StopsGradient
    : public mlir::OpTrait::TraitBase<ConcreteType, StopsGradient> {};

/// An op whose result is its operands one behind the other in memory. They are
/// made there, so that it computes and copies nothing.
template <typename ConcreteType>
class JoinsOperands
    : public mlir::OpTrait::TraitBase<ConcreteType, JoinsOperands> {};

namespace detail {
mlir::LogicalResult verifyShardings(mlir::Operation *op);
int64_t countElements(mlir::Value value);
int64_t countResultElements(mlir::Operation *op);
int64_t countOperandAndResultBytes(mlir::Operation *op);
int64_t getExtent(mlir::Operation *op, llvm::StringRef spec, char letter);
} // namespace detail

} // namespace plait

#include "plait/Interfaces/OpInterfaces.h.inc"

namespace plait {

/// How an op takes part in a kernel; nothing for one that does not.
inline std::optional<FusionRole> findRole(mlir::Operation *op) {
  auto fusable = llvm::dyn_cast<FusableOpInterface>(op);
  return fusable ? std::optional(fusable.getFusionRole()) : std::nullopt;
}

/// The facts of the role of `op`, which may be null.
inline RoleFacts getFacts(mlir::Operation *op) {
  auto fusable = llvm::dyn_cast_or_null<FusableOpInterface>(op);
  return fusable ? getFacts(fusable.getFusionRole()) : RoleFacts();
}

inline bool isReduction(mlir::Operation *op) { return getFacts(op).reduces; }

} // namespace plait

#endif // PLAIT_INTERFACES_OPINTERFACES_H

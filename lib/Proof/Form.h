//===- Form.h - Forms of distributed tensors --------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A form says what the tensors that the ranks of a mesh hold under one name
// have to do with one global tensor. Ranks that differ only along axes of the
// mesh have one form:
//   - a dimension is a slice: it begins at the sum of index · stride over some
//     axes, and what lies beyond the global tensor is padding. The global
//     tensor may be stored in zig-zag order along it, of which the slice is
//     one;
//   - over some axes the values of the ranks still have to be added up (or
//     maximised) to give the global one;
//   - along all other axes the ranks hold the same.
//
// What a rank computes in chunks, one after the other, are slices too: chunk i
// of n is one at i · stride along an axis of its own, and what is added up over
// it is partial, until all chunks have been added.
//
// The axis of pipeline stages is none of them: its ranks have programs of their
// own.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_PROOF_FORM_H
#define PLAIT_LIB_PROOF_FORM_H

#include "Term.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Interfaces/NumberRange.h"

#include "mlir/IR/BuiltinTypes.h"
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace plait::proof {

/// Some of the equal chunks of a dimension (nn.chunk), which forms call an
/// axis: a slice is of one of them, a sum may be of several.
///
/// In a sum the dimension is gone. That its parts were of one dimension is told
/// by its number alone: of a tensor and of its transpose it is another one.
struct Chunks {
  /// Begins with `first`, and ends before `second`.
  using Range = std::pair<int64_t, int64_t>;

  int64_t dim, parts;
  /// Lists them in their order, with others between them: so the same chunks
  /// are the same axis, in whichever order they have been added up.
  llvm::SmallVector<Range, 2> ranges;

  static Chunks one(int64_t dim, int64_t part, int64_t parts) {
    return {dim, parts, {{part, part + 1}}};
  }
  /// Adds chunks of the same dimension; false: they are of another one, or some
  /// are there already.
  bool add(const Chunks &other);
  bool areAll() const { return ranges[0] == Range(0, parts); }
  mlir::StringAttr getAxis(mlir::MLIRContext *context) const;
  /// None: it is an axis of the mesh.
  static std::optional<Chunks> parse(llvm::StringRef axis);
};

/// The axes of a mesh with more than one rank, without that of the pipeline.
class MeshSizes {
public:
  /// Null: one rank.
  explicit MeshSizes(dist::MeshOp op);

  /// 1 for an axis that the mesh does not have; of chunks, how many there are.
  int64_t getSize(llvm::StringRef axis) const;
  /// The number of blocks that the axes of `begin` make.
  int64_t countBlocks(llvm::ArrayRef<RankTerm> begin) const;
  /// Without the axes that have one rank.
  llvm::SmallVector<RankTerm, 2> simplify(llvm::ArrayRef<RankTerm> begin) const;
  /// The blocks of `chunk` elements of a dimension split over `axes`, major to
  /// minor.
  llvm::SmallVector<RankTerm, 2> split(llvm::ArrayRef<mlir::StringAttr> axes,
                                       int64_t chunk) const;
  /// Whether `begin` are such blocks, of some axes in some order.
  bool tiles(llvm::ArrayRef<RankTerm> begin, int64_t chunk) const;

private:
  llvm::SmallVector<std::pair<llvm::StringRef, int64_t>> axes;
};

/// One dimension of a rank's tensor.
struct Dimension {
  /// All elements along it that are not padding are the same; the term does not
  /// have it.
  bool uniform = true;
  /// Where the rank's slice begins; no axis: it has the whole.
  llvm::SmallVector<RankTerm, 2> begin;
  /// What lies beyond the end of the global tensor, where the blocks are
  /// larger.
  NumberRange padding = NumberRange::exactly(0);
  /// Of a global tensor stored as so many chunks in zig-zag order; 0: in its
  /// own.
  int64_t chunks = 0;
  /// In how many rounds the last axis of `begin` deals the dimension out: the
  /// scale of its term is then what a rank has of one.
  int64_t rounds = 1;

  /// How many elements the global tensor has, where the term does not tell: of
  /// equal ones, if something else lies in the padding. 0: nothing else does,
  /// or the term tells.
  int64_t extent = 0;

  /// Whether it is a slice of any dimension, wherever that begins.
  bool fitsAll() const { return uniform && extent == 0; }
  /// Equal elements have no order.
  bool liesAs(const Dimension &other) const {
    return begin == other.begin && rounds == other.rounds &&
           (chunks == other.chunks || uniform || other.uniform);
  }
  /// Makes it the slice of `size` elements that `other` is as well, of which
  /// the padding is not known; false: there is none.
  bool join(const Dimension &other, int64_t size);
  /// Counts how many of a rank's `count` equal elements the global tensor has
  /// in a sum over it and over `begin`; 1 of elements that are not equal.
  int64_t countEqual(int64_t count) const {
    return !uniform ? 1 : extent ? extent : count;
  }
};

/// Tells which rows of a value belong to a rank: those whose ids are among its
/// `extent` experts, from `begin` on.
///
/// Of a token, which has several ids, all ranks have the row that have an
/// expert of one of them: the dimension of the ids that the value lacks is
/// kAny.
struct Owner {
  static constexpr int kAny = -1;

  const Term *ids;
  Letters dims; // of the value, along which those of the ids lie
  llvm::SmallVector<RankTerm, 2> begin;
  int64_t extent;

  /// Whether a rank that has a row by `other` has it by this one.
  bool covers(const Owner &other) const;
  bool operator==(const Owner &) const = default;
};

struct Form {
  const Term *term = nullptr;
  llvm::SmallVector<Dimension, 4> dims; // of the rank's tensor
  llvm::SmallVector<mlir::StringAttr, 2> partial;
  dist::Reduction reduction = dist::Reduction::Sum; // of the partial axes
  /// Tells of a partial sum that each row is whole on one of the ranks along
  /// the owner's axes, and `elsewhere` on the others: only of zeros it is a
  /// sum.
  ///
  /// With the reduction Owned several ranks may have a row: nothing combines
  /// it.
  std::optional<Owner> owner = std::nullopt;
  NumberRange elsewhere = NumberRange::exactly(0);

  bool isPartial() const { return !partial.empty(); }
  bool isPartialOver(llvm::StringRef axis) const;
  /// Whether rows are those of tokens, which several ranks may have.
  bool isDispatched() const {
    return owner && reduction == dist::Reduction::Owned;
  }
  /// Makes rows that belong to one rank each whole for all.
  void dropOwner();
  /// The dimension that `axis` splits, or -1.
  int64_t findDim(llvm::StringRef axis) const;
  /// The dimension of the term that `dim` is; it must not be uniform.
  int64_t getTermDim(int64_t dim) const;
  /// How many elements `dim` has; it must not fit all.
  int64_t getExtent(int64_t dim) const {
    return dims[dim].extent ? dims[dim].extent : term->shape[getTermDim(dim)];
  }
  /// Takes a term whose letters are dimensions: along all others it is uniform.
  /// Of those the extents have to be known. Zero is whole, however it came
  /// about.
  void setTerm(Expression expression);
  /// The term with the rank's dimensions as letters.
  Argument asArgument() const;
};

struct Pack;

/// What is known of an SSA value: the type of one rank's tensor, and its form
/// or, of a pack, those of its members.
struct Content {
  mlir::RankedTensorType type;
  Form form;
  std::shared_ptr<const Pack> pack; // null: one tensor
  /// What has put it into the slot from which it was read, for messages; null:
  /// it was not read.
  mlir::Operation *writer = nullptr;
  /// Of a sum of numbers that only another sum takes: what it adds up, and the
  /// form is not known.
  std::shared_ptr<std::vector<Content>> summands = nullptr;
};

/// A tensor of a pack that is not its members side by side, but what becomes of
/// the gradients that replicas compress (RulesCompression.cpp).
struct PackView {
  /// The axis along which ranks have parts of their own; null: there is none.
  /// Members have a dimension in front, of these replicas, of which a rank has
  /// one; the tensor has it only if it is stacked.
  mlir::StringAttr replicas;
  bool isStacked = false;
  /// One number of each row, which are the members' chunks; a member has it for
  /// all elements of the chunk.
  bool isByRow = false;
  /// One of so many equal parts of each row.
  int64_t part = 0, parts = 1;
  /// Words of integers of so many bits; 0: none.
  int64_t bits = 0;
  /// Holds the elements of each row that a mask has, side by side in so many
  /// columns; 0: all of them. A member is whole, and says which mask.
  int64_t kept = 0;
  /// And not the elements but their columns: a member is the mask.
  bool areColumns = false;

  bool operator==(const PackView &) const = default;
  bool isPlain() const { return *this == PackView(); }
};

/// A tensor of tensors that lie side by side.
struct Pack {
  struct Member {
    int64_t offset;              // elements from the beginning
    llvm::StringRef name;        // of the parameter
    mlir::RankedTensorType type; // of the rank's tensor
    Form form;
    const Term *mask = nullptr; // of those elements that are kept
  };
  std::vector<Member> members;
  int64_t elements = 0; // of all rows
  /// The axes that divide its rows; elements of the members lie where they do.
  llvm::SmallVector<RankTerm, 2> rows;
  /// Added up along its columns.
  bool reducedColumns = false;
  PackView view;
  /// What lies between members.
  NumberRange gap = NumberRange::exactly(0);
};

/// Makes a slice of any dimension of what has equal elements in its padding as
/// well, or has none.
void simplify(Form &form, mlir::RankedTensorType type, const MeshSizes &mesh);

/// Whether it is what the trainer sets to keep a divisor from zero.
bool isDivisorBound(const Term *term);

/// Returns the number that an operand has in all elements along a dimension
/// that fits all, or between the members of a pack.
NumberRange getUniform(const Content &operand);

/// Whether `dim` of a rank's `extent` elements reaches beyond the global
/// tensor.
bool isPadded(const Form &form, int64_t dim, int64_t extent,
              const MeshSizes &mesh);

/// "the slice at 64 · tp of dimension 1, a partial sum over dp".
std::string printLayout(const Form &form);
/// With the term.
std::string print(const Content &content);

} // namespace plait::proof

#endif // PLAIT_LIB_PROOF_FORM_H

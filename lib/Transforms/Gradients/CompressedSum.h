//===- CompressedSum.h - Sums of compressed gradients -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H

#include "StepUnits.h"
#include "plait/Configuration/Compressors.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <memory>

namespace plait {

/// Numbers of chunks, for a compressor that is written in nn ops: those of a
/// table of which each row is a chunk, or of whole parameters, where that is
/// what a step is defined by.
class Chunks {
public:
  /// `places`: of the tensors that a table has one behind the other, or of the
  /// parameter.
  Chunks(nn::NNBuilder &nn, dist::MeshOp mesh, int64_t block, bool isTable,
         llvm::ArrayRef<TensorPlace> places)
      : nn(nn), mesh(mesh), block(block), isTable(isTable), places(places) {}

  /// The sum or the maximum of each chunk of `x`.
  mlir::Value reduce(mlir::Value x, nn::ReduceKind kind);
  /// The number of each chunk for each element of `like`.
  mlir::Value spread(mlir::Value numbers, mlir::Value like);
  /// 1 where `like` has an element, and 0 behind the last one of a chunk.
  mlir::Value occupied(mlir::Value like);
  /// A mask of all rows for `like`, which has them, or those that this rank
  /// adds up, of one replica or of several: it is the same for all of them.
  mlir::Value fitMask(mlir::Value mask, mlir::Value like);
  /// Takes the rows that a rank has along `axes`.
  mlir::Value takeRows(mlir::Value all, llvm::ArrayRef<mlir::StringAttr> axes);
  /// A random number of at least 0 and below 1 for each element of what is
  /// compressed, with all rows, in each step another one; `shared`: the same on
  /// all replicas.
  mlir::Value draw(bool shared);
  /// The rows of `all` that `like` has.
  mlir::Value takeRowsOf(mlir::Value all, mlir::Value like);

  nn::NNBuilder &nn;
  /// Counts the messages of a step, each of which has other random numbers.
  int64_t round = 0;
  /// Names the axes along which ranks add up other rows; none: each has all.
  llvm::ArrayRef<mlir::StringAttr> added;
  /// Holds what is compressed, or was made a sum of, with all rows.
  mlir::Value whole;
  /// Whether a sum is compressed, which is one for all replicas.
  bool alone = false;

private:
  bool hasAllRows(mlir::Value like);

  dist::MeshOp mesh;
  int64_t block;
  bool isTable;
  llvm::SmallVector<TensorPlace> places;
};

/// Integers and numbers of chunks, all in f32: an integer of each element and a
/// number of each chunk, or what the rule makes of these.
/// Null codes: none are sent.
struct Message {
  mlir::Value codes, numbers;
};

/// The words that are made of integers of so many bits, and the inverse.
mlir::Value packWords(nn::NNBuilder &nn, mlir::Value codes, int64_t bits);
mlir::Value unpackWords(nn::NNBuilder &nn, mlir::Value words, int64_t bits);

/// A compressor in nn ops. It makes zeros of zeros where there is no element,
/// since what lies behind the end of a parameter is zero and has to stay so.
/// Where an element is not finite, something that is sent of its chunk is not
/// either.
class CompressionRule {
public:
  virtual ~CompressionRule() = default;
  virtual Message encode(mlir::Value x) = 0;
  virtual mlir::Value decode(const Message &message) = 0;
  /// Returns what is sent of a message: integers of the compressor's bits, and
  /// numbers, as many as Compression::getMessage says.
  virtual Message send(const Message &message) { return message; }
  /// Decodes what was sent. `own` is the message of this replica.
  virtual mlir::Value receive(const Message &message, const Message &own) {
    return decode(message);
  }
};

/// Creates the rule of a compressor that is on. `chunks` must outlive it.
std::unique_ptr<CompressionRule>
createCompressionRule(const Compression &compression, Chunks &chunks);

/// The sum over the replicas of `mesh` of what each sends of its gradient.
class CompressedSum {
public:
  /// `isTable`: gradients are packs, each row of which is a chunk; else they
  /// are whole parameters, and nothing is sent. `places` as in Chunks.
  /// `dividing` are the axes along which ranks update other rows, major to
  /// minor.
  CompressedSum(nn::NNBuilder &nn, dist::MeshOp mesh,
                const Compression &compression, bool isTable,
                llvm::ArrayRef<TensorPlace> places,
                llvm::ArrayRef<mlir::StringAttr> dividing);

  /// Access to what a rank keeps of the parameter.
  struct Kept {
    llvm::function_ref<mlir::Value(nn::Slot)> read;
    llvm::function_ref<void(mlir::Value, nn::Slot)> write;
    /// Whether micro-batches have added the gradient to the error.
    bool hasGradient = false;
  };
  /// Reads what a replica has of the gradient and changes what it keeps.
  /// Returns what the rank updates with, of the sum over all replicas.
  mlir::Value apply(llvm::function_ref<mlir::Value()> readGradient,
                    const Kept &kept);

private:
  mlir::RankedTensorType getPartsType(mlir::RankedTensorType type);
  mlir::Value unite(mlir::Value parts, mlir::RankedTensorType type);
  mlir::Value gather(mlir::Value own);
  mlir::Value gatherRows(mlir::Value rows);
  mlir::Value scatter(mlir::Value own);
  mlir::Value exchange(const Message &message);
  /// A message of one round, and what others read of it.
  struct Sent {
    Message message;
    mlir::Value value;
  };
  Sent send(mlir::Value wanted);
  mlir::Value sendRounds(mlir::Value &left, bool isKept);
  mlir::Value compressSum(mlir::Value sum, const Kept &kept);
  mlir::Value sendDifference(llvm::function_ref<mlir::Value()> readGradient,
                             const Kept &kept);

  nn::NNBuilder &nn;
  dist::MeshOp mesh;
  Compression compression;
  bool isTable;
  /// Whether there are other ranks to send something to.
  bool sends;
  llvm::SmallVector<mlir::StringAttr> added; // see Chunks
  /// Names the axes behind these along which ranks update other rows.
  llvm::ArrayRef<mlir::StringAttr> rest;
  Chunks chunks;
  std::unique_ptr<CompressionRule> rule;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H

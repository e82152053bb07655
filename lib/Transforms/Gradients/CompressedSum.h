//===- CompressedSum.h - Sums of compressed gradients -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H
#define PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H

#include "plait/Configuration/Compressors.h"
#include "plait/Dialect/NN/IR/NNBuilder.h"

#include <memory>

namespace plait {

/// Numbers of chunks, for a compressor that is written in nn ops: those of a
/// table of which each row is a chunk, or of whole parameters, where that is
/// what a step is defined by.
class Chunks {
public:
  Chunks(nn::NNBuilder &nn, int64_t block, bool isTable)
      : nn(nn), block(block), isTable(isTable) {}

  /// The sum or the maximum of each chunk of `x`.
  mlir::Value reduce(mlir::Value x, nn::ReduceKind kind);
  /// The number of each chunk for each element of `like`.
  mlir::Value spread(mlir::Value numbers, mlir::Value like);

  nn::NNBuilder &nn;

private:
  int64_t block;
  bool isTable;
};

/// An integer of each element and a number of each chunk, all in f32.
struct Message {
  mlir::Value codes, numbers;
};

/// A compressor in nn ops. It makes zeros of zeros, since the rest of the last
/// chunk of a parameter is zero and has to stay so. Where an element is not
/// finite, nothing of its chunk may be. Integers fit the compressor's bits
/// (plait/Configuration/Compressors.h).
class CompressionRule {
public:
  virtual ~CompressionRule() = default;
  virtual Message encode(mlir::Value x) = 0;
  virtual mlir::Value decode(const Message &message) = 0;
};

/// Creates the rule of a compressor that is on. `chunks` must outlive it.
std::unique_ptr<CompressionRule>
createCompressionRule(const Compression &compression, Chunks &chunks);

/// The sum over the replicas of `mesh` of what each sends of its gradient.
class CompressedSum {
public:
  /// `isTable`: gradients are packs, each row of which is a chunk; else they
  /// are whole parameters, and nothing is sent.
  CompressedSum(nn::NNBuilder &nn, dist::MeshOp mesh,
                const Compression &compression, bool isTable);

  struct Result {
    mlir::Value sum;   // over all replicas, of what each of them sends
    mlir::Value error; // what this one has not sent; null without feedback
  };
  /// Takes what a replica has of the gradient, and what it did not send before
  /// (null without feedback).
  Result apply(mlir::Value gradient, mlir::Value error);

private:
  mlir::RankedTensorType getPartsType(mlir::RankedTensorType type);
  mlir::Value gather(mlir::Value own);
  mlir::Value exchange(const Message &message);

  nn::NNBuilder &nn;
  dist::MeshOp mesh;
  Compression compression;
  bool isTable;
  Chunks chunks;
  std::unique_ptr<CompressionRule> rule;
};

} // namespace plait

#endif // PLAIT_LIB_TRANSFORMS_GRADIENTS_COMPRESSEDSUM_H

//===- ProgramConverter.h - Programs and parameters of the plan -*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_CONVERSION_TOPLAN_PROGRAMCONVERTER_H
#define PLAIT_LIB_CONVERSION_TOPLAN_PROGRAMCONVERTER_H

#include "WriteSteps.h"
#include "plait/Configuration/Compressors.h"
#include "plait/Configuration/Optimizers.h"
#include "plait/Dialect/Dist/IR/Dist.h"
#include "plait/Dialect/NN/IR/NN.h"
#include "plait/Dialect/Plan/IR/Buffers.h"

namespace plait {

/// The parameters that some program holds, in the order of the module. The
/// first program that has a parameter owns it.
class ParameterTable {
public:
  ParameterTable(mlir::ModuleOp module, plan::fb::PlanT &plan);

  /// Adds the shards of the parameters whose buffers, or those of their packs,
  /// are in `offsets`. Fails with an error if one has a gradient there, but not
  /// all that training needs.
  mlir::LogicalResult addShards(plan::fb::ProgramT &program,
                                const ParameterPacks &packs,
                                const llvm::StringMap<uint64_t> &offsets);

private:
  std::unique_ptr<plan::fb::ShardT> makeShard(nn::ParameterOp parameter);
  std::unique_ptr<plan::fb::DivisionT> makeDivision(nn::ParameterOp parameter,
                                                    const ParameterPacks &packs,
                                                    nn::Slot slot);
  /// Finds where the program has a slot of the parameter; none: it has it not.
  using FindOffset = llvm::function_ref<std::optional<uint64_t>(nn::Slot slot)>;
  mlir::LogicalResult addState(plan::fb::ShardT &shard,
                               nn::ParameterOp parameter,
                               const ParameterPacks &packs, FindOffset find);

  dist::MeshOp mesh;
  const Optimizer &optimizer;
  const Compression compression;
  llvm::SmallVector<nn::ParameterOp> parameters;
  llvm::SmallVector<bool> owned;
};

/// The tables that the programs of a plan share.
struct SharedTables {
  ParameterTable parameters;
  KernelTable kernels;
  /// The index in Plan.data, by the name of the constant.
  llvm::StringMap<uint32_t> data;
  mlir::SymbolTableCollection symbols;
};

mlir::FailureOr<std::unique_ptr<plan::fb::ProgramT>>
convertProgram(plan::ProgramOp program, SharedTables &shared,
               plan::fb::PlanT &plan);

} // namespace plait

#endif // PLAIT_LIB_CONVERSION_TOPLAN_PROGRAMCONVERTER_H

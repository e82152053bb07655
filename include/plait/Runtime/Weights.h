//===- Weights.h - Parameters into and out of a running plan ----*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All of these run on every rank at once, each rank touching only what it
// holds. Padding stays zero. Of several processes all make the same calls; what
// leaves the plan does so in the process of rank 0, block by block.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_WEIGHTS_H
#define PLAIT_RUNTIME_WEIGHTS_H

#include "plait/Runtime/Executor.h"
#include "plait/Runtime/Safetensors.h"
#include "plait/Runtime/Slices.h"
#include "plait/Support/Status.h"

#include <string>
#include <vector>

namespace plait::runtime {

/// Sets every parameter from `files`. What these need not have begins as
/// without weights: adapters, where there are none.
Status loadWeights(Executor &executor, const WeightFiles &files,
                   uint64_t seed = 0);

/// Opens the model at `weights` and adapters of it: `adapter` is a folder as
/// PEFT saves them. Fails where the plan has no adapters, or where these count
/// otherwise.
Result<WeightFiles> openWithAdapter(const fb::Plan &plan,
                                    const std::string &weights,
                                    const std::string &adapter);

/// Returns the dropout that the adapters in the folder `adapter` were trained
/// with, which plans do not apply; 0 where it has none or cannot be read.
double findAdapterDropout(const std::string &adapter);

/// The tensors of `files` that loadWeights has no use for: see
/// WeightFiles::findOthers. Empty where it would fail.
std::vector<std::string> findUnusedTensors(const fb::Plan &plan,
                                           const WeightFiles &files);

/// Sets every parameter from its initialiser; see Random.h. The values do not
/// depend on the mesh.
Status initializeWeights(Executor &executor, uint64_t seed);

/// Makes `directory` if necessary and fails when saveWeights could not write
/// there: to be asked before a long run.
Status prepareToSave(const std::string &directory);

/// Writes a model folder as Hugging Face's transformers open it, making the
/// directory if necessary: model.safetensors, in `type`, F32 or BF16;
/// config.json where the plan has one, which says that type; and the files of
/// the tokenizer that are in the directory `origin`, if it is one. Of a plan
/// with adapters it writes these alone, as PEFT does: adapter_model.safetensors
/// and adapter_config.json, which calls the model by `origin`. The bytes
/// depend neither on the mesh's processes nor on their number. After a failure
/// in any process there is no new file. Of several sites they are the mean.
Status saveWeights(Executor &executor, const std::string &directory,
                   const std::string &origin = "",
                   FileTensor::Type type = FileTensor::Type::F32);

/// Multiplies every weight of a plan of one rank by 1 + 2^-9 or 1 - 2^-9, as
/// often the one as the other, drawn by `seed`: what rounding to bf16 does at
/// most. Returns the weights as they were, for restoreWeights().
Result<std::vector<std::vector<float>>> disturbWeights(Executor &executor,
                                                       uint64_t seed);
Status restoreWeights(Executor &executor,
                      const std::vector<std::vector<float>> &weights);

/// Reads elements of `piece` of a rank, whatever their type is, from element
/// `begin` of it on.
Status readPiece(Device &device, const Piece &piece, int64_t begin,
                 std::span<float> target);

/// Which tensor of a parameter: its values, or the gradient after a step, the
/// sum over all tokens of the batch.
enum class ParameterTensor { Weight, Gradient };

/// Returns a tensor of parameter `parameter` as one row-major tensor of the
/// parameter's shape. Empty in other processes than that of rank 0, and where
/// it is the gradient of one that is frozen. Of several sites weights are the
/// mean, and gradients the first one's.
Result<std::vector<float>> gatherTensor(Executor &executor, uint32_t parameter,
                                        ParameterTensor kind);

/// Sets parameter `parameter` on all ranks to `values`, a row-major tensor of
/// the parameter's shape.
Status setParameter(Executor &executor, uint32_t parameter,
                    std::span<const float> values);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_WEIGHTS_H

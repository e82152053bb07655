//===- Contents.h - Contents of a rank's checkpoint -------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CHECKPOINT_CONTENTS_H
#define PLAIT_LIB_RUNTIME_CHECKPOINT_CONTENTS_H

#include "Boxes.h"
#include "plait/Runtime/Safetensors.h"
#include "plait/Runtime/Slices.h"

#include <map>
#include <string>

namespace plait::runtime {

/// The slot of which each tensor of the model file has one: its values, under
/// this name, and what the optimizer keeps of it, under the optimizer's.
constexpr char weightSlot[] = "weight";

/// The name under which the state `slot` of `rank` is stored: its own, and
/// where ranks along an axis each have another one, with the rank's index
/// there, "error.3".
std::string nameOf(const fb::StateSlot &slot, const plan::RankGrid &mesh,
                   uint32_t rank);
/// Likewise of the values: "weight", or of site 3 "weight.3".
std::string nameOfWeight(const plan::RankGrid &mesh, uint32_t rank);

/// A piece of a slot that a rank stores, and the boxes of the file tensor that
/// it is, in the order of its elements.
struct StoredPiece {
  const fb::Parameter &parameter;
  std::string slot;
  Piece piece;
  std::vector<Box> boxes;
};

/// Lists what `rank` stores. All ranks together store each element of each slot
/// once: of a tied parameter one program does, and ranks that hold the same
/// block divide it. Padding is never stored.
std::vector<StoredPiece> contentsOf(const fb::Plan &plan,
                                    const plan::RankGrid &mesh, uint32_t rank);

/// The box as a tensor of a safetensors file.
TensorShape storedTensor(const std::string &tensor, const std::string &slot,
                         const Box &box);

/// All boxes of `contents`, in their order in a rank's file.
std::vector<TensorShape>
layOutContents(const std::vector<StoredPiece> &contents);

/// The file of a rank: "rank-00003.safetensors".
std::string rankFileName(uint32_t rank);

/// A file tensor as a plan knows it: of each slot the boxes of the parameters
/// that are views of it.
struct NeededTensor {
  Shape shape;
  std::map<std::string, std::vector<Box>> slots;
};
/// Lists what a checkpoint of `plan` has, by the name of the tensor.
std::map<std::string, NeededTensor> neededBy(const fb::Plan &plan);

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CHECKPOINT_CONTENTS_H

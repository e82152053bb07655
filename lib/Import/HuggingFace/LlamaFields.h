//===- LlamaFields.h - Fields of models like Llama --------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What several families of models read of their configs. Fallbacks are those of
// Hugging Face's config of the family: a saved config may leave out what has
// its usual value. Errors are remembered by the reader.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMAFIELDS_H
#define PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMAFIELDS_H

#include "Llama.h"

namespace plait::hf {

/// The values that a family's config has where it says nothing.
struct Usual {
  int64_t positions;
  double epsilon;
  /// Nothing: as many as query heads, and hidden size / heads.
  std::optional<int64_t> groups = std::nullopt, headSize = std::nullopt;
  bool isLatent = false;
  double theta = 10000.0;
  /// Theta of layers with a window, where they turn heads in a way of their
  /// own: then readRopes() reads it, behind the windows.
  std::optional<double> windowTheta = std::nullopt;
  bool isTied = false;
  bool opensByGelu = false;
  /// How much of each head turns; nothing: all, and a config may not say
  /// otherwise.
  std::optional<double> turned = std::nullopt;
  /// Neighbours turn together.
  bool interleaved = false;
  /// GELU is between the two matrices of an MLP: its usual name.
  llvm::StringRef gelu = {};
  /// Fields that other families have under other names.
  llvm::StringRef epsilonField = "rms_norm_eps", thetaField = "rope_theta",
                  turnedField = "partial_rotary_factor";
};

/// Reads what all families have.
Llama readCommon(ConfigReader &config, const Usual &usual);

/// Fails unless each query head has a key and value head of its own.
void requireOwnKeys(const Llama &llama, ConfigReader &config);

/// Reads a window of all layers: `sliding_window`, or none where that is null.
/// What a config without the field has is `usual`, 0 for none.
void readWindow(Llama &llama, ConfigReader &config, int64_t usual);

/// Reads Qwen's windows: of the layers that `layer_types` names, else of those
/// from `max_window_layers` on; of none without `use_sliding_window`.
void readLayerWindows(Llama &llama, ConfigReader &config);

/// Reads the windows of the layers that `layer_types` names, else of all but
/// every `period`-th.
void readAlternatingWindows(Llama &llama, ConfigReader &config, int64_t usual,
                            int64_t period);

/// Reads how layers with and without a window turn heads: the theta of those
/// with one is in the field `windowField`, or, where that is empty, in
/// `rope_parameters` alone.
void readRopes(Llama &llama, ConfigReader &config, const Usual &usual,
               llvm::StringRef windowField);

/// Copies the fields into what builds the model: the config is gone by then.
Model makeModel(Llama llama, ConfigReader &config, int64_t sequence);

} // namespace plait::hf

#endif // PLAIT_LIB_IMPORT_HUGGINGFACE_LLAMAFIELDS_H

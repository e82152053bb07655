//===- HuggingFace.h - From a model file to an nn module ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The first phase. What it makes, whatever it reads:
//
//  - `nn.parameter` symbols named as in the model's weight files. A tensor that
//    the model slices or reshapes is declared as views of the file's tensor, so
//    that the function needs neither (GPT-2's c_attn is three parameters);
//  - `func.func @loss(%tokens, %targets) -> (loss, count)`, both arguments
//    tensor<batch x sequence x i32>: the loss summed over the targets that are
//    not -100, and their number. A third argument, where there is dropout, is
//    tensor<batch x i32>, a random number of each sequence;
//  - `nn.layer = i` on every op of repeated block i, nothing on the others;
//  - the module attribute `plait.model`, a dictionary with `model_type`,
//  `name`,
//    `vocab` and `layers`.
//
// A field of a config that would change the arithmetic and is not supported is
// an error that names it, and so is a field that is not known at all: silently
// training another model is the one thing an importer must not do.
//
// Errors and warnings are diagnostics of the context, one line each, that name
// the file and the field. Nothing is kept between calls.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_IMPORT_HUGGINGFACE_H
#define PLAIT_IMPORT_HUGGINGFACE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "plait/Plan/Files.h"

namespace plait {

/// The target that does not count, as in PyTorch.
inline constexpr int32_t kIgnoredTarget = -100;

struct ImportOptions {
  /// Sequences of one microbatch, over all data-parallel ranks; at least 1.
  int64_t batch = 1;
  /// Tokens of a sequence; at least 1.
  int64_t sequence = 1;
  /// Fields of a config that nobody knows, and of which the user says that they
  /// change no arithmetic: their names, those of inner objects with a dot.
  std::vector<std::string> ignoredFields = {};
};

/// Names the model of a config: the name of the folder that its
/// `config.json` is in, without the owner's for one in the cache of Hugging
/// Face; of a file that is called otherwise, its name without the extension.
/// `path` is that file, or the folder.
std::string getModelName(llvm::StringRef path);

/// The file that `path` means: itself, or the `config.json` in the folder, see
/// findModelFolder().
std::string getConfigPath(llvm::StringRef path);

/// Opens the file of a config. The error about one that does not exist says how
/// a model of the hub is downloaded where `path` is the name of one.
Result<MappedFile> openConfig(const std::string &path);

/// Builds the module for a Hugging Face `config.json`. `path` is that file, or
/// the folder with it. Supports the `model_type`s of docs/UserGuide.md.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importHuggingFace(mlir::MLIRContext &context, llvm::StringRef path,
                  const ImportOptions &options);

/// The same for the text of a `config.json`. `file` is what messages call it,
/// and names the model as a path would.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importConfig(mlir::MLIRContext &context, llvm::StringRef text,
             llvm::StringRef file, const ImportOptions &options);

/// Reads a module that was written by hand or by an earlier phase, verifies it,
/// and checks that it has the function and the attribute described above. What
/// an undecided model (plait/Import/ModelSource.h) does not say is found:
/// layers where no op has one, as blocks that repeat, and entries of the
/// attribute.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importMLIR(mlir::MLIRContext &context, llvm::StringRef path);

} // namespace plait

#endif // PLAIT_IMPORT_HUGGINGFACE_H

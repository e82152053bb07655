//===- plait-opt.cpp - Runs any pass alone ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// MLIR's own driver with plait's dialects and passes: any pass alone, on IR
// that plaitc --dump-phases-to has written or a test has by hand.
//
//===----------------------------------------------------------------------===//

#include "plait/InitAll.h"
#include "plait/Plan/Files.h"
#include "plait/Proof/Passes.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"

/// Leaves libLLVM's own options, which exist before main, out of --help.
static void hideLLVMOptions() {
  for (auto &entry : llvm::cl::getRegisteredOptions())
    entry.second->setHiddenFlag(llvm::cl::ReallyHidden);
}

/// An error is its line: the operation that follows it by default may be a
/// whole function. --mlir-print-op-on-diagnostic brings it back.
static void shortenDiagnostics() {
  mlir::registerMLIRContextCLOptions();
  auto option =
      llvm::cl::getRegisteredOptions().find("mlir-print-op-on-diagnostic");
  if (option != llvm::cl::getRegisteredOptions().end())
    static_cast<llvm::cl::opt<bool> *>(option->second)->setInitialValue(false);
}

/// Options of one letter may stand in a group: -p, short for --pass-pipeline,
/// would take --plait-shrad for itself, and nobody would hear of --plait-shard.
static void removePipelineLetter(mlir::DialectRegistry &registry) {
  mlir::MlirOptMainConfig::registerCLOptions(registry);
  auto letter = llvm::cl::getRegisteredOptions().find("p");
  if (letter != llvm::cl::getRegisteredOptions().end())
    letter->second->removeArgument();
}

/// Leaves what is for debugging MLIR to --help-hidden: --help is what there is
/// to run.
static void hideDebuggingOptions() {
  for (auto &entry : llvm::cl::getRegisteredOptions())
    if (entry.first.starts_with("mlir-"))
      entry.second->setHiddenFlag(llvm::cl::Hidden);
}

/// Options of LLVM are hidden before MLIR adds its own.
int main(int argc, char **argv) {
  hideLLVMOptions();
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &out) { out << "plait-opt " PLAIT_VERSION "\n"; });
  shortenDiagnostics();
  mlir::DialectRegistry registry;
  plait::registerAllDialects(registry);
  plait::registerAllPasses();
  plait::proof::registerPlaitProofPasses();
  removePipelineLetter(registry);
  hideDebuggingOptions();
  auto [input, output] = mlir::registerAndParseCLIOptions(
      argc, argv, "plait: compiles the training of a transformer\n", registry);
  // MLIR would read a device for ever.
  plait::Status readable = input == "-" ? plait::Status::success()
                                        : plait::checkInput(input, "input");
  if (!readable.ok()) {
    llvm::errs() << "plait-opt: error: " << readable.message() << "\n";
    return EXIT_FAILURE;
  }
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, input, output, registry));
}

//===- plait-opt.cpp - Runs any pass alone ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/InitAll.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

/// Leaves libLLVM's own options, which exist before main, out of --help.
static void hideLLVMOptions() {
  for (auto &entry : llvm::cl::getRegisteredOptions())
    entry.second->setHiddenFlag(llvm::cl::ReallyHidden);
}

int main(int argc, char **argv) {
  hideLLVMOptions();
  mlir::DialectRegistry registry;
  plait::registerAllDialects(registry);
  plait::registerAllPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(
      argc, argv, "plait: compiles the training of a transformer\n", registry));
}

//===- my-opt.cpp - plait-opt with the dialect my and its pass ---*- C++
//-*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "My.h"
#include "plait/InitAll.h"
#include "plait/Transforms/Passes.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  plait::registerAllDialects(registry);
  registry.insert<my::MyDialect>();
  plait::registerAllPasses();
  my::registerPasses();
  return mlir::asMainReturnCode(
      mlir::MlirOptMain(argc, argv, "plait's passes, and my\n", registry));
}

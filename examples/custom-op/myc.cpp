//===- myc.cpp - plaitc with the dialect my ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "My.h"
#include "plait/Driver/Driver.h"

#include <cstdio>

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: myc MODEL.mlir MESH OUT.plan\n");
    return 1;
  }
  plait::CompileOptions options;
  options.model = argv[1];
  options.mesh = argv[2];
  options.output = argv[3];
  options.pins.globalBatch = 16;
  options.pins.microBatch = 4; // what the shapes of model.mlir say
  options.pins.sequence = 32;
  options.addDialects = [](mlir::DialectRegistry &registry) {
    registry.insert<my::MyDialect>();
  };
  return plait::compile(options) ? 0 : 1;
}

//===- myc.cpp - plaitc with the dialect my ---*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "My.h"
#include "plait/Driver/Session.h"
#include "plait/Support/Fields.h"

#include <cstdio>

/// Prints what the session says.
struct Printer : plait::Reporter {
  void message(const plait::Message &message) override {
    std::fprintf(stderr, "myc: %s\n",
                 plait::spellFields(message.getLine()).c_str());
  }
};

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: myc MODEL.mlir MESH OUT.plan\n");
    return 1;
  }
  Printer printer;
  plait::Session session(printer, [](mlir::DialectRegistry &registry) {
    registry.insert<my::MyDialect>();
  });
  plait::CompileOptions options;
  options.mesh = argv[2];
  options.pins.globalBatch = 16;
  options.pins.microBatch = 4; // what the shapes of model.mlir say
  options.pins.sequence = 32;
  auto model = session.import({.model = argv[1]});
  if (!model.ok())
    return 1;
  auto plan = session.compile(*model, options);
  if (!plan.ok())
    return 1;
  plait::Status saved = plan->save(argv[3]);
  if (!saved.ok())
    std::fprintf(stderr, "myc: %s\n", saved.message().c_str());
  return saved.ok() ? 0 : 1;
}

//===- Configure.cpp - Set fields of the configuration --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The options are made from the list of the configuration's fields, so that a
// field that is added to the list is an option of this pass at once. They are
// strings to the command line: setField() parses them as it does for plaitc,
// with the same messages.
//
//===----------------------------------------------------------------------===//

#include "plait/Transforms/Passes.h"

#include <deque>

namespace plait {
#define GEN_PASS_DEF_CONFIGUREPASS
#include "plait/Transforms/Passes.h.inc"
} // namespace plait

using namespace mlir;
using namespace plait;

namespace {
struct ConfigurePass : plait::impl::ConfigurePassBase<ConfigurePass> {
  ConfigurePass() { addOptions(); }
  // Whoever copies a pass copies the values of its options itself.
  ConfigurePass(const ConfigurePass &other) : ConfigurePassBase(other) {
    addOptions();
  }

  /// One for each field, under its name; the values of `list` do not matter.
  void addOptions() {
    TrainingConfiguration list;
    visitConfiguration(
        [&](const Field &field, const auto &) {
          fields.emplace_back(*this, field.name, llvm::cl::desc(field.help));
        },
        list);
  }

  void runOnOperation() override {
    // What the module says is kept where no option is given.
    TrainingConfiguration configuration = getConfiguration(getOperation());
    for (const Option<std::string> &field : fields)
      if (field.hasValue())
        if (Status status =
                setField(configuration, field.getArgStr().str(), field);
            !status.ok()) {
          getOperation().emitError(status.message());
          return signalPassFailure();
        }
    setConfiguration(getOperation(), configuration);
  }

  // The pass holds pointers to its options, so that they must not move: a
  // vector that grows would.
  std::deque<Option<std::string>> fields; // stay where they are
};
} // namespace

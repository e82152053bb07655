//===- TensorBoard.h - A run as TensorBoard's event files -------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An event file is a sequence of records, each its length (u64), the length's
// check sum, the bytes and their check sum, little-endian; a check sum is
// CRC-32C turned right by 15 bits plus 0xa282ead8 (TensorFlow, "TFRecord"). The
// bytes are an Event of event.proto: wall_time = 1, step = 2, file_version = 3,
// summary = 5; a Summary is Values (1) with tag = 1 and simple_value = 2.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_TRAINING_TENSORBOARD_H
#define PLAIT_LIB_RUNTIME_TRAINING_TENSORBOARD_H

#include "plait/Runtime/Observer.h"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace plait::runtime {

/// CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(std::string_view bytes);

/// The scalars of a run, complete after every step.
class TensorBoard : public Observer {
public:
  /// Starts a file of its own in `directory`, which is made if necessary.
  static Result<std::unique_ptr<Observer>> open(const std::string &directory);

  Status beginRun(const RunInfo &run) override;
  Status endStep(const StepReport &step) override;

private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };

  TensorBoard(std::string path, std::FILE *file)
      : path(std::move(path)), file(file) {}

  /// A record of `event`, with the time put in front.
  Status write(const std::string &event);

  std::string path;
  std::unique_ptr<std::FILE, Close> file;
  const RunInfo *run = nullptr;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_TRAINING_TENSORBOARD_H

//===- KeptChoices.cpp - Algorithms that a run stays with -----------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptChoices.h"

#include "Checkpoint/Store.h"
#include "plait/Runtime/Rendezvous.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace plait;
using namespace plait::runtime;
namespace fs = std::filesystem;

static constexpr char fileName[] = "algorithms.txt";

/// Returns its path in a directory of checkpoints, or in that which holds the
/// checkpoint that is named.
static fs::path findFile(const std::string &resume) {
  std::error_code error;
  fs::path directory = resume;
  return (fs::exists(directory / indexName, error) ? directory / ".."
                                                   : directory) /
         fileName;
}

void runtime::findChoices(TrainOptions &options) {
  GemmTiming &timing = options.executor.gemmTiming;
  timing.isKept = !options.checkpoint.directory.empty();
  const Rendezvous *processes = options.executor.processes;
  std::error_code error;
  if (options.resume.empty() || (processes && processes->place().index))
    return;
  fs::path path = findFile(options.resume);
  if (!fs::exists(path, error))
    return;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (text << file.rdbuf())
    timing.chosen = text.str();
  else
    plait::tell(options.executor.reporter, Severity::Warning,
                "cannot read '" + path.string() +
                    "': " + std::strerror(errno ? errno : EIO) +
                    "; algorithms of matmuls are chosen anew");
}

/// The file is the old one or the new one, also where the run is killed.
void runtime::keepChoices(const Executor &executor,
                          const TrainOptions &options) {
  const std::string &text = executor.libraryChoices();
  if (text.empty() || !executor.leads() || options.checkpoint.directory.empty())
    return;
  fs::path path = fs::path(options.checkpoint.directory) / fileName;
  fs::path partial = path.string() + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file << text;
  file.close();
  std::error_code error;
  if (file)
    fs::rename(partial, path, error);
  else
    error = std::error_code(errno, std::generic_category());
  if (error)
    executor.warn("cannot write '" + path.string() + "': " + error.message() +
                  "; a run that resumes may round sums of matmuls in another "
                  "way");
}

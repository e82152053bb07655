//===- ModelFolder.cpp - Where a model's files are ------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/ModelFolder.h"

#include "plait/Plan/Files.h"

#include <filesystem>

using namespace plait;

/// A commit is 40 digits; a name that would lead out of the folder is none.
std::string plait::findModelFolder(const std::string &folder) {
  Result<MappedFile> file = MappedFile::open(folder + "/refs/main", "revision");
  if (!file.ok())
    return folder;
  std::string commit(file->bytes().begin(), file->bytes().end());
  while (commit.ends_with('\n'))
    commit.pop_back();
  std::string snapshot = folder + "/snapshots/" + commit;
  std::error_code error;
  bool isName = !commit.empty() && commit.find('/') == commit.npos;
  return isName && std::filesystem::is_directory(snapshot, error) ? snapshot
                                                                  : folder;
}

//===- Family.cpp - Plans of one model for several sizes ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The plans between which a supervisor chooses. plaitc --also writes them side
// by side under names that plan::isFamilyName() knows; here each is opened and
// held against the first. They have to train one model on one batch by one
// optimizer, or a restart on another plan would not go on with the same run.
//
//===----------------------------------------------------------------------===//

#include "Family.h"

#include "Checkpoint/Contents.h"
#include "Checkpoint/Reader.h"
#include "Checkpoint/Store.h"
#include "plait/Plan/FamilyNames.h"
#include "plait/Plan/Ranks.h"

#include <algorithm>
#include <filesystem>

using namespace plait;
using namespace plait::runtime;

/// Fails unless a run of `first` can go on with `other`.
static Status checkKin(const fb::Plan &first, const fb::Plan &other,
                       const std::string &path) {
  auto differ = [&](const char *what, auto mine, auto theirs) {
    return fail("plan '", path, "' is not of the same family: it has ", what,
                " ", theirs, ", the first one ", mine);
  };
  if (first.global_batch() != other.global_batch())
    return differ("global batch", first.global_batch(), other.global_batch());
  if (first.sequence() != other.sequence())
    return differ("sequence", first.sequence(), other.sequence());
  if (uint32_t mine = plan::RankGrid(first).sites(),
      theirs = plan::RankGrid(other).sites();
      mine != theirs)
    return differ("sites", mine, theirs);
  PlanIdentity mine = PlanIdentity::of(first, 0);
  PlanIdentity theirs = PlanIdentity::of(other, 0);
  if (mine.optimizer != theirs.optimizer ||
      mine.optimizers != theirs.optimizers)
    return differ("optimizer", mine.nameOptimizers(), theirs.nameOptimizers());
  auto isSame = [](const auto &a, const auto &b) {
    return a.first == b.first && a.second.shape == b.second.shape;
  };
  // Tensors by name and shape: what a checkpoint of one has, the other needs.
  auto ours = neededBy(first), others = neededBy(other);
  if (!std::equal(ours.begin(), ours.end(), others.begin(), others.end(),
                  isSame))
    return fail("plan '", path,
                "' is not of the same family: its model has other tensors");
  return Status::success();
}

/// Keeps what is needed of a plan: its file is closed again, but for the first
/// one.
Status PlanFamily::add(const std::string &path, const plan::PlanFile &file) {
  PLAIT_RETURN_IF_ERROR(checkKin(first.plan(), file.plan(), path));
  uint32_t ranks = plan::RankGrid(file.plan()).ranks();
  members.push_back({path, ranks, PlanIdentity::of(file.plan(), 0).mesh});
  return Status::success();
}

/// The name says how many ranks a plan has; one that was exchanged is refused.
/// The order of the directory plays no role: members are sorted, behind the
/// first.
Result<PlanFamily> PlanFamily::open(const std::string &path) {
  auto file = plan::PlanFile::open(path);
  if (!file.ok())
    return file.status();
  PlanFamily family(std::move(*file));
  PLAIT_RETURN_IF_ERROR(family.add(path, family.first));
  std::error_code error;
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const auto &entry : std::filesystem::directory_iterator(
           folder.empty() ? "." : folder, error)) {
    std::string name = (folder / entry.path().filename()).string();
    uint32_t ranks = 0;
    // Other files of the folder are none of this.
    if (!plan::isFamilyName(path, name, ranks))
      continue;
    auto other = plan::PlanFile::open(name);
    if (!other.ok())
      return other.status();
    PLAIT_RETURN_IF_ERROR(family.add(name, *other));
    if (family.members.back().ranks != ranks)
      return fail("plan '", name, "' has ", family.members.back().ranks,
                  " ranks, its name says ", ranks);
  }
  std::sort(family.members.begin() + 1, family.members.end(),
            [](const Member &a, const Member &b) { return a.ranks < b.ranks; });
  return family;
}

// The member that leaves the fewest slots idle, or null where none fits. Of
// members with the same number of ranks the first one, which the user named.
const PlanFamily::Member *PlanFamily::find(uint64_t slots) const {
  const Member *best = nullptr;
  for (const Member &member : members)
    if (member.ranks <= slots && (!best || member.ranks > best->ranks))
      best = &member;
  return best;
}

/// There is always the first.
const PlanFamily::Member &PlanFamily::smallest() const {
  return *std::min_element(
      members.begin(), members.end(),
      [](const Member &a, const Member &b) { return a.ranks < b.ranks; });
}

/// The newest checkpoint that can be read decides; the family is one model.
Status PlanFamily::checkFits(const std::string &directory) const {
  auto found = findCheckpoints(directory);
  if (!found.ok())
    return Status::success(); // none so far
  for (const CheckpointStore::Entry &entry : *found)
    // A damaged one is left to the run, which says so.
    if (auto reader = CheckpointReader::open(entry.path); reader.ok())
      return reader->checkFits(first.plan(), /*beginsFeedback=*/true);
  return Status::success();
}

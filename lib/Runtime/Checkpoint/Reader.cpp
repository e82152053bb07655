//===- Reader.cpp - The tensors of a checkpoint ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A checkpoint, opened: the index, the mapped files of ranks, and for each slot
// of each tensor a BoxMap that finds an element's box. Any plan reads through
// it, element by element of the global tensors, and so does not see how the
// plan that wrote it had split them.
//
// What can be known without reading the data is verified when it is opened:
// sizes, names, shapes, and that boxes are disjoint. Checksums are another
// matter, as they need all bytes (verify()), and so is whether a plan finds all
// that it needs (checkFits()).
//
//===----------------------------------------------------------------------===//

#include "Reader.h"

#include "Contents.h"
#include "plait/Configuration/CompressionFacts.h"
#include "plait/Plan/CompileSettings.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Sites.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

/// How much of the files may be in memory: 16 MiB for each thread.
static constexpr int64_t releaseElements = 1 << 22;

Result<CheckpointReader> CheckpointReader::open(const std::string &path) {
  std::string name = path + "/" + indexName;
  Result<MappedFile> file = MappedFile::open(name, "checkpoint");
  if (!file.ok())
    return file.status();
  Result<CheckpointIndex> index = CheckpointIndex::parse(file->bytes());
  if (!index.ok())
    return fail("checkpoint '", name, "' ", index.status().message());
  return open(path, std::move(*index), {});
}

Result<CheckpointReader> CheckpointReader::open(const std::string &path,
                                                CheckpointIndex index,
                                                const std::vector<bool> &here) {
  CheckpointReader reader;
  reader.path = path;
  reader.parts = std::move(index);
  PLAIT_RETURN_IF_ERROR(reader.openFiles(here));
  for (const auto &[tensorName, tensor] : reader.parts.tensors)
    PLAIT_RETURN_IF_ERROR(reader.checkTensor(tensorName, tensor));
  return reader;
}

static Status checkSize(const std::string &name, const MappedFile &mapped,
                        const StoredFile &file) {
  return mapped.bytes().size() == file.bytes
             ? Status::success()
             : fail("checkpoint '", name, "' has ", mapped.bytes().size(),
                    " bytes, its index says ", file.bytes);
}

/// `files` is by the number in the index, with an empty entry for what is on
/// other hosts only: boxes refer to files by that number.
Status CheckpointReader::openFiles(const std::vector<bool> &here) {
  for (const StoredFile &file : parts.files) {
    if (!here.empty() && !here[files.size()]) {
      files.emplace_back();
      continue;
    }
    std::string name = path + "/" + file.name;
    Result<MappedFile> mapped = MappedFile::open(name, "checkpoint");
    if (!mapped.ok())
      return mapped.status();
    PLAIT_RETURN_IF_ERROR(checkSize(name, *mapped, file));
    Result<WeightFiles> opened = WeightFiles::open(name, {name});
    if (!opened.ok())
      return opened.status();
    files.push_back(std::move(*opened));
  }
  return Status::success();
}

/// Resolves each box to its tensor in a mapped file. The name has the box in
/// it, so that index and files cannot disagree on where the elements belong.
Status CheckpointReader::checkTensor(const std::string &name,
                                     const StoredTensor &tensor) {
  for (const auto &[slotName, stored] : tensor.slots) {
    Result<BoxMap> map = BoxMap::create(tensor.shape, stored.boxes);
    if (!map.ok())
      return fail("checkpoint '", path, "': ", slotName, " of '", name, "' ",
                  map.status().message());
    Slot slot = {std::move(*map), {}, stored.files};
    for (size_t i = 0; i < stored.boxes.size(); ++i) {
      const std::optional<WeightFiles> &file = files[stored.files[i]];
      if (!file) {
        slot.sources.push_back(nullptr);
        continue;
      }
      TensorShape box = storedTensor(name, slotName, stored.boxes[i]);
      auto source = file->find(box.name, box.shape);
      if (!source.ok())
        return source.status();
      if ((*source)->type != FileTensor::Type::F32)
        return fail("checkpoint '", path, "': '", box.name, "' is not F32");
      slot.sources.push_back(*source);
    }
    slots.emplace(std::pair(name, slotName), std::move(slot));
  }
  return Status::success();
}

/// A part at a time, so that it does not take the memory of the whole.
static Status checkHash(const std::string &name, const MappedFile &mapped,
                        const StoredFile &file) {
  constexpr size_t partBytes = releaseElements * sizeof(float);
  // The state is aligned to 64 bytes and large, hence on the heap.
  auto state = std::make_unique<XXH3_state_t>();
  XXH3_64bits_reset(state.get());
  for (auto rest = mapped.bytes(); !rest.empty(); mapped.release()) {
    auto part = rest.first(std::min(rest.size(), partBytes));
    XXH3_64bits_update(state.get(), part.data(), part.size());
    rest = rest.subspan(part.size());
  }
  return XXH3_64bits_digest(state.get()) == file.hash
             ? Status::success()
             : fail("checkpoint '", name,
                    "' is damaged: its checksum does not hold");
}

Status CheckpointReader::verify(uint32_t file) const {
  const StoredFile &stored = parts.files[file];
  return checkHash(path + "/" + stored.name, files[file]->file(0), stored);
}

Status CheckpointReader::verify(const std::string &path,
                                const StoredFile &file) {
  std::string name = path + "/" + file.name;
  Result<MappedFile> mapped = MappedFile::open(name, "checkpoint");
  if (!mapped.ok())
    return mapped.status();
  PLAIT_RETURN_IF_ERROR(checkSize(name, *mapped, file));
  return checkHash(name, *mapped, file);
}

/// "moment1, moment2".
template <typename Slots> static std::string nameSlots(const Slots &slots) {
  std::string names;
  for (const auto &[name, slot] : slots)
    if (name != weightSlot && !name.starts_with(std::string(weightSlot) + "."))
      names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "nothing" : names;
}

/// The sites whose weights of their own a tensor has; 0: it has one for all.
template <typename Slots> static int64_t countSites(const Slots &slots) {
  std::string prefix = std::string(weightSlot) + ".";
  return std::ranges::count_if(
      slots, [&](const auto &slot) { return slot.first.starts_with(prefix); });
}

/// "moment1" and 2 of "moment1.2"; of a name without an owner -1.
static std::pair<std::string_view, int64_t> splitOwner(std::string_view name) {
  size_t point = name.rfind('.');
  std::string_view digits = point == name.npos ? "" : name.substr(point + 1);
  int64_t index = -1;
  const char *end = digits.data() + digits.size();
  if (digits.empty() || std::from_chars(digits.data(), end, index).ptr != end)
    return {name, -1};
  return {name.substr(0, point), index};
}

static std::string describeSites(int64_t sites) {
  return sites == 0   ? "no sites"
         : sites == 1 ? "1 site"
                      : std::to_string(sites) + " sites";
}

/// Once all have agreed, a site more or less changes nothing of what they have
/// in common.
Status CheckpointReader::checkSites(const fb::Plan &plan, int64_t mine,
                                    int64_t own) const {
  if (mine == own)
    return Status::success();
  std::string sites = "checkpoint '" + path + "' has weights of " +
                      describeSites(mine) + ", the plan of " +
                      describeSites(own);
  if (mine == 0 || own == 0)
    return fail(sites);
  Outer outer = plan::outerOf(plan);
  if (outer.is(Agreement::Gossip) || outer.is(Agreement::Streaming))
    return fail(sites, ", which never agree as a whole by ",
                plan::describeOuter(plan));
  if (outer.corrects())
    return fail(sites, ", whose corrections add up to 0 with those of all (",
                plan::describeOuter(plan), ")");
  uint64_t step = parts.run.step;
  return step % uint64_t(outer.every) == 0
             ? Status::success()
             : fail(sites, ", and step ", step,
                    " is none after which all agree, as after each ",
                    outer.every);
}

/// Slots by name: optimizers differ by them. Where sites differ in number, what
/// each has is one.
template <typename Slots>
static std::vector<std::string> nameKinds(const Slots &slots, bool joinsSites) {
  std::vector<std::string> names;
  for (const auto &[name, slot] : slots) {
    std::string kind = joinsSites ? std::string(splitOwner(name).first) : name;
    if (names.empty() || names.back() != kind)
      names.push_back(kind);
  }
  return names;
}

/// Whether what a plan keeps as `name` begins at zero, because the run that
/// wrote `stored` has fed nothing back.
template <typename Slots>
static bool beginsAnew(const Slots &stored, std::string_view name) {
  std::string_view kind = splitOwner(name).first;
  return isCompressionState(kind) &&
         std::ranges::none_of(stored, [&](const auto &slot) {
           return splitOwner(slot.first).first == kind;
         });
}

/// Compares in both directions: what the plan lacks would silently be dropped,
/// and what the checkpoint lacks stay as initialised. Slots are compared by
/// name alone, which is how optimizers differ; both are sorted.
Status CheckpointReader::checkFits(const fb::Plan &plan,
                                   bool beginsFeedback) const {
  // Checkpoints of earlier versions do not say it.
  double alpha = plan::findAlpha(plan), theirs = parts.plan.alpha;
  if (alpha > 0 && theirs > 0 && alpha != theirs)
    return fail("checkpoint '", path, "' has adapters of alpha ", theirs,
                ", the plan's have ", alpha);
  auto needed = neededBy(plan);
  for (const auto &[name, tensor] : parts.tensors)
    if (!needed.contains(name))
      return fail("checkpoint '", path, "' has tensor '", name,
                  "', which the plan's model lacks");
  for (const auto &[name, tensor] : needed) {
    auto found = parts.tensors.find(name);
    if (found == parts.tensors.end())
      return fail("checkpoint '", path, "' has no tensor '", name, "'");
    const StoredTensor &stored = found->second;
    if (stored.shape != tensor.shape)
      return fail("checkpoint '", path, "': tensor '", name, "' has shape ",
                  formatShape(stored.shape), ", in the plan ",
                  formatShape(tensor.shape));
    // Sites are told apart from optimizers first: both are names of slots.
    int64_t mine = countSites(stored.slots), own = countSites(tensor.slots);
    PLAIT_RETURN_IF_ERROR(checkSites(plan, mine, own));
    auto read = tensor.slots;
    std::erase_if(read, [&](const auto &slot) {
      return beginsFeedback && beginsAnew(stored.slots, slot.first);
    });
    if (nameKinds(stored.slots, mine != own) != nameKinds(read, mine != own))
      return fail("checkpoint '", path, "' is of optimizer ",
                  parts.plan.nameOptimizers(), " and keeps ",
                  nameSlots(stored.slots), " of '", name,
                  "'; the plan's optimizer ",
                  PlanIdentity::of(plan, 0).nameOptimizers(), " keeps ",
                  nameSlots(tensor.slots));
    for (const auto &[slotName, boxes] : read)
      PLAIT_RETURN_IF_ERROR(checkCovered(name, slotName, tensor.shape, boxes));
  }
  return Status::success();
}

/// The boxes of the checkpoint are disjoint, so that as many elements as are
/// needed, all of them there, are the needed ones, each once.
Status CheckpointReader::checkCovered(const std::string &name,
                                      const std::string &slotName,
                                      const Shape &shape,
                                      const std::vector<Box> &boxes) const {
  const Slot &slot = *find(name, slotName);
  int64_t needed = 0;
  uint32_t hint = 0;
  Status status = Status::success();
  for (const Box &box : boxes) {
    needed += box.count();
    forEachRun(box, shape, [&](int64_t begin, int64_t count) {
      // By what lies side by side in one box, not by the element.
      while (count && status.ok()) {
        BoxMap::Found found = slot.map.find(begin, count, hint);
        if (!found.count)
          status = fail("checkpoint '", path, "' lacks element ", begin, " of ",
                        slotName, " of '", name, "'");
        begin += found.count;
        count -= found.count;
      }
    });
    PLAIT_RETURN_IF_ERROR(std::move(status));
  }
  if (needed != slot.map.count())
    return fail("checkpoint '", path, "' has ", slot.map.count(),
                " elements of ", slotName, " of '", name, "', the plan ",
                needed);
  return Status::success();
}

const CheckpointReader::Slot *
CheckpointReader::find(const std::string &tensor,
                       const std::string &slot) const {
  if (auto found = slots.find({tensor, slot}); found != slots.end())
    return &found->second;
  auto stored = parts.tensors.find(tensor);
  auto [kind, site] = splitOwner(slot);
  if (stored == parts.tensors.end() || site < 0)
    return nullptr;
  int64_t sites = countSites(stored->second.slots);
  if (sites == 0)
    return nullptr;
  auto found = slots.find(
      {tensor, std::string(kind) + "." + std::to_string(site % sites)});
  return found == slots.end() ? nullptr : &found->second;
}

Result<BoxMap::Found> CheckpointReader::Cursor::find(int64_t begin,
                                                     int64_t most) {
  BoxMap::Found found = slot->map.find(begin, most, hint);
  return found.count
             ? Result<BoxMap::Found>(found)
             : fail("checkpoint '", reader->path, "' lacks element ", begin);
}

/// Pages of a mapping count as this process's memory until they are released.
/// All files are released at once: which of them have been touched is not kept,
/// and pages that other threads still need are read again from the page cache.
void CheckpointReader::Cursor::readFound(const BoxMap::Found &found,
                                         std::span<float> target) {
  slot->sources[found.box]->read(found.begin, target);
  unreleased += found.count;
  if (unreleased < releaseElements)
    return;
  for (const std::optional<WeightFiles> &file : reader->files)
    if (file)
      file->release();
  unreleased = 0;
}

/// A file that is here is read, any other one is fetched. The order of fetches
/// is that of the calls, which the sender repeats; see RemoteFiles.h.
Result<CheckpointReader::Cursor::Part>
CheckpointReader::Cursor::readPart(int64_t begin, std::span<float> target) {
  Result<BoxMap::Found> found = find(begin, target.size());
  if (!found.ok())
    return found.status();
  uint32_t file = fileOf(*found);
  if (slot->sources[found->box])
    readFound(*found, target.first(found->count));
  else
    PLAIT_RETURN_IF_ERROR(fetch(file, target.first(found->count)));
  return Part{file, found->count};
}

Status CheckpointReader::Cursor::read(int64_t begin, std::span<float> target) {
  while (!target.empty()) {
    auto part = readPart(begin, target);
    if (!part.ok())
      return part.status();
    begin += part->count;
    target = target.subspan(part->count);
  }
  return Status::success();
}

//===- Guard.cpp - Search for the source of NaNs --------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The guard reads arena bytes back through Device::read() and looks at
// exponents only; that costs about as much time as the step itself
// (docs/Training.md, "Bad steps"), which is why it runs every so many steps.
// Which bytes a step uses is plan::usesOf()'s knowledge: no step has a rule of
// its own here.
//
// The second half compares replicas: hashes of blocks go to the process of rank
// 0, never the blocks, so that the exchange is a line for each shard and rank.
//
//===----------------------------------------------------------------------===//

#include "Guard.h"

#include "Shards.h"
#include "plait/Plan/Check.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/InputWords.h"
#include "plait/Plan/Uses.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Support/BFloat16.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <sstream>
#include <xxhash.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The size of what is read at a time. Bounds the host's copy of a tensor,
/// however large that is.
constexpr uint64_t windowBytes = 1 << 22;

/// Whether a value is no number that a kernel may mean. Kernels may write minus
/// infinity for hidden scores; plus infinity and NaN are broken even there.
bool isBroken(float value, bool allowsMask) {
  return !std::isfinite(value) && !(allowsMask && value < 0);
}

/// A bf16 is the upper half of an f32.
float widened(uint16_t bits) {
  return std::bit_cast<float>(uint32_t(bits) << 16);
}

/// The first broken element. Of a kernel's tensors (`unit` 1) it is not said
/// whether they are f32 or bf16: in both the odd halves of four bytes have an
/// exponent. Taking bf16 data for f32 looks at every other element only: a NaN
/// in the even halves alone is missed, but nothing finite is reported, since
/// the exponent is tested first in the half that both readings share. `element`
/// is in units of 2 bytes where `unit` is 2, else of 4.
template <typename Report>
void scan(std::span<const std::byte> bytes, uint64_t unit, bool allowsMask,
          Report report) {
  const auto *halves = reinterpret_cast<const uint16_t *>(bytes.data());
  uint64_t count = bytes.size() / 2;
  bool all = unit == 2;
  for (uint64_t i = all ? 0 : 1; i < count; i += all ? 1 : 2) {
    if ((halves[i] & 0x7f80) != 0x7f80) // most are finite
      continue;
    float value =
        all ? widened(halves[i])
            : std::bit_cast<float>(uint32_t(halves[i]) << 16 | halves[i - 1]);
    if (isBroken(value, allowsMask))
      return report(all ? i : i / 2, value);
  }
}

/// Whether a step makes numbers; those of copies and collectives are made
/// elsewhere.
bool makesNumbers(const fb::Step &step) {
  return step.step_type() == fb::StepKind::KernelStep ||
         step.step_type() == fb::StepKind::GemmStep ||
         step.step_type() == fb::StepKind::GroupedGemmStep ||
         step.step_type() == fb::StepKind::AttentionStep;
}

} // namespace

/// Tokens, targets, keys and starts are integers, whose bits may look like NaN,
/// and float inputs no step has made.
bool StepGuard::isInput(uint64_t begin, uint64_t end) const {
  for (uint32_t i = 0; i < plan::length(program.inputs()); ++i) {
    const fb::Input &input = *program.inputs()->Get(i);
    uint64_t bytes =
        input.microbatches() * plan::countWords(input) * sizeof(int32_t);
    if (begin < input.offset() + bytes && input.offset() < end)
      return true;
  }
  return false;
}

/// Windows are a multiple of four bytes, so that no element is cut in two.
Result<std::optional<StepGuard::Found>>
StepGuard::find(uint64_t begin, uint64_t end, uint64_t unit, bool allowsMask) {
  std::optional<Found> found;
  for (uint64_t at = begin; at < end && !found; at += windowBytes) {
    window.resize(std::min(windowBytes, end - at));
    PLAIT_RETURN_IF_ERROR(device.read(at, window));
    scan(window, unit, allowsMask, [&](uint64_t element, float value) {
      uint64_t size = unit == 2 ? 2 : 4;
      found = {(at - begin) / size + element, value};
    });
  }
  return found;
}

/// A step with a broken input is not looked at any further: somebody else is to
/// blame. Likewise where it is not known how much it reads (`toEnd`): behind
/// what it does read there may be anything.
Result<bool> StepGuard::isInputFinite(const fb::Action &action,
                                      const fb::Step &step) {
  if (!makesNumbers(step))
    return false;
  bool isKernel = step.step_type() == fb::StepKind::KernelStep;
  for (const plan::Use &use : plan::usesOf(mesh, step)) {
    plan::ByteRange range = plan::rangeOf(program, action, use);
    if (use.toEnd)
      return false;
    if (use.writes || use.isInteger || isInput(range.begin, range.end))
      continue;
    auto found = find(range.begin, range.end, use.unit, isKernel);
    if (!found.ok())
      return found.status();
    if (*found)
      return false;
  }
  return true;
}

/// Operands of kernels have no names, so that their number is reported.
Status StepGuard::checkOutput(const fb::Action &action, const fb::Step &step) {
  bool isKernel = step.step_type() == fb::StepKind::KernelStep;
  int index = 0;
  for (const plan::Use &use : plan::usesOf(mesh, step)) {
    int number = index++;
    // Words of several integers may look like any float.
    if (!use.writes || use.isInteger)
      continue;
    plan::ByteRange range = plan::rangeOf(program, action, use);
    auto found = find(range.begin, range.end, use.unit, isKernel);
    if (!found.ok())
      return found.status();
    if (*found)
      return fail("guard: of finite numbers it makes ", (**found).value,
                  ", element ", (**found).element, " of ", use.what,
                  isKernel ? " " + std::to_string(number) : std::string());
  }
  return Status::success();
}

//===----------------------------------------------------------------------===//
// Replicas
//===----------------------------------------------------------------------===//

namespace {

/// Hashes what ranks compute with, by parameter and block. Threads of the ranks
/// of a process add to it side by side.
class Replicas {
public:
  explicit Replicas(Executor &executor) : executor(executor) {}

  Status add(uint32_t rank, const fb::Shard &shard,
             const fb::Parameter &parameter);
  /// A line for each: parameter, block, hash, rank.
  std::string print() const { return lines; }

private:
  Executor &executor;
  std::mutex mutex;
  std::string lines;
};

/// Looks at what the program computes with, the bf16 copy where there is one:
/// it is whole on every rank also where the master copy is divided. The key of
/// the line is the parameter and where its block begins, in which replicas
/// agree; hashes are chained through the seed, window by window.
Status Replicas::add(uint32_t rank, const fb::Shard &shard,
                     const fb::Parameter &parameter) {
  bool isRounded = shard.compute_dtype() == fb::DType::BF16;
  uint64_t unit = isRounded ? 2 : 4;
  uint64_t begin = isRounded ? shard.compute_weight() : shard.weight();
  uint64_t bytes = unit;
  // Padding is hashed as well: it is zero on all replicas.
  for (int64_t extent : *shard.local_shape())
    bytes *= extent;
  std::vector<std::byte> window;
  std::string broken;
  XXH64_hash_t hash = 0;
  // Stops at the first broken element: a hash of a broken block is of no use.
  for (uint64_t at = 0; at < bytes && broken.empty(); at += windowBytes) {
    window.resize(std::min(windowBytes, bytes - at));
    PLAIT_RETURN_IF_ERROR(executor.device(rank).read(begin + at, window));
    hash = XXH3_64bits_withSeed(window.data(), window.size(), hash);
    scan(window, unit, /*allowsMask=*/false,
         [&](uint64_t element, float value) {
           broken = std::to_string(value) + " at element " +
                    std::to_string(at / unit + element);
         });
  }
  if (!broken.empty())
    return fail("guard: its part of parameter '", parameter.name()->str(),
                "' has ", broken);
  std::ostringstream line;
  line << shard.parameter();
  // Sites have weights of their own.
  if (uint32_t axis = executor.mesh().sitesAxis())
    line << "," << executor.mesh().index(rank, axis);
  for (uint32_t i = 0; i < shard.dims()->size(); ++i)
    line << ","
         << plan::blockOf(executor.mesh(), rank, *shard.dims()->Get(i),
                          parameter.shape()->Get(i))
                .begin;
  line << " " << hash << " " << rank << "\n";
  std::lock_guard lock(mutex);
  lines += line.str();
  return Status::success();
}

/// Compares what the lines of all processes say together. The first line of a
/// block is what all later ones must equal.
Status compareReplicas(const fb::Plan &plan,
                       std::span<const std::string> texts) {
  struct Seen {
    std::string hash;
    uint32_t rank;
  };
  std::map<std::string, Seen> known; // by parameter and block
  for (const std::string &text : texts) {
    std::istringstream input(text);
    std::string block;
    Seen own;
    // `block` begins with the parameter's number.
    while (input >> block >> own.hash >> own.rank) {
      auto [it, isNew] = known.try_emplace(block, own);
      if (!isNew && it->second.hash != own.hash)
        return fail("parameter '",
                    plan.parameters()->Get(std::stoul(block))->name()->str(),
                    "' differs between rank ",
                    std::min(it->second.rank, own.rank), " and rank ",
                    std::max(it->second.rank, own.rank),
                    ", which should have the same of it");
    }
  }
  return Status::success();
}

} // namespace

/// Process 0 alone compares; judge() brings its verdict to all, so that all
/// processes end with the same message.
Status runtime::checkReplicas(Executor &executor, uint64_t step) {
  Replicas replicas(executor);
  PLAIT_RETURN_IF_ERROR(
      forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                 const fb::Parameter &parameter) {
        return replicas.add(rank, shard, parameter);
      }));
  auto verdict = [&](std::span<const std::string> texts) {
    Status status = compareReplicas(executor.plan(), texts);
    return status.ok() ? status
                       : fail(status.code(), "guard: after step ", step, ": ",
                              status.message());
  };
  std::string mine = replicas.print();
  if (Rendezvous *processes = executor.processes())
    return processes->judge(mine, verdict);
  return verdict(std::span(&mine, 1));
}

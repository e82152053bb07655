//===- RemoteFiles.cpp - Files that are on other hosts --------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading from the memory of several hosts. RemoteFiles.h says why nobody sends
// requests; what makes it work is here:
// - Receiver and sender walk the shards of a rank with the same code
//   (forEachSlot(), setTensor()); the sender's arena has no device, so that
//   writing does nothing and only the order in which elements are asked for is
//   left.
// - senderTo() is a function of what all processes know, so that each element
//   has one sender, and both ends know which.
// - Elements go in blocks of one size, cut without regard to tensors. Each pair
//   of a sending process and a rank is one stream of blocks, with the rank as
//   tag.
//
//===----------------------------------------------------------------------===//

#include "RemoteFiles.h"

#include "Blocks.h"
#include "Contents.h"
#include "Core/Processes.h"
#include "Core/Shards.h"
#include "MPI/Engine.h"
#include "plait/Plan/Defaults.h"

using namespace plait;
using namespace plait::runtime;

namespace {

/// Ranks that a process sends to at once.
constexpr size_t mostAtOnce = 4;

/// How many elements a block has: a rank may have one of each other process.
/// The same in all processes, since both ends compute it: from 64 KiB to 1 MiB.
size_t blockElements(uint32_t processes) {
  constexpr size_t all = size_t(4) << 20; // 16 MiB
  return std::clamp(all / processes, size_t(1) << 14, size_t(1) << 18);
}

/// The data that one process sends to one rank, as that rank sees it. Reads
/// through a block that it keeps: what is left of one belongs to the next call.
/// The last block may be longer than what is asked of it.
class BlockReceiver {
public:
  BlockReceiver(MpiEngine &engine, uint32_t peer, uint32_t rank, size_t size)
      : engine(engine), peer(peer), rank(rank), block(size), used(size) {}

  /// Waits for as long as the sender takes; a sender that has stopped makes the
  /// engine fail.
  Status read(std::span<float> target) {
    while (!target.empty()) {
      if (used == block.size()) {
        PLAIT_RETURN_IF_ERROR(
            engine.run({transferOf(MpiTransfer::Kind::Receive, peer, rank,
                                   std::as_writable_bytes(std::span(block)))},
                       MpiEngine::forEver));
        used = 0;
      }
      size_t count = std::min(target.size(), block.size() - used);
      std::copy_n(block.begin() + used, count, target.begin());
      used += count;
      target = target.subspan(count);
    }
    return Status::success();
  }

private:
  MpiEngine &engine;
  uint32_t peer, rank;
  std::vector<float> block;
  size_t used;
};

/// Calls `visit(slot, set)` for all slots of a shard in the order in which they
/// are loaded; `set(source)` sets one.
/// One function for both ends, as their order has to be the same.
template <typename Visit>
Status forEachSlot(const RankArena &arena, const fb::Shard &shard,
                   const fb::Parameter &parameter, Visit visit) {
  PLAIT_RETURN_IF_ERROR(visit(
      nameOfWeight(arena.mesh, arena.rank), [&](const ElementSource &source) {
        return setWeights(arena, shard, parameter, source);
      }));
  for (uint32_t i = 0; i < plan::length(shard.state()); ++i) {
    const fb::StateSlot &slot = *shard.state()->Get(i);
    PLAIT_RETURN_IF_ERROR(visit(
        nameOf(slot, arena.mesh, arena.rank), [&](const ElementSource &source) {
          return setTensor(arena, shard, parameter, stateOf(shard, slot),
                           source);
        }));
  }
  return Status::success();
}

} // namespace

/// The other end.
/// Collects elements in a block, to which the reader writes directly, and sends
/// it when it is full.
class runtime::BlockSender {
public:
  BlockSender(MpiEngine &engine, uint32_t peer, uint32_t rank, size_t size)
      : engine(engine), peer(peer), rank(rank), block(size) {}

  /// Returns where the next elements go, at most `most`; add() says how many
  /// have. Never empty: a full block is sent at once.
  std::span<float> room(size_t most) {
    return std::span(block).subspan(used, std::min(most, block.size() - used));
  }
  Status add(size_t count) {
    used += count;
    return used == block.size() ? send() : Status::success();
  }
  /// The rest, in a block of the same size.
  Status finish() { return used ? send() : Status::success(); }

private:
  Status send() {
    used = 0;
    return engine.run({transferOf(MpiTransfer::Kind::Send, peer, rank,
                                  std::as_writable_bytes(std::span(block)))},
                      MpiEngine::forEver);
  }

  MpiEngine &engine;
  uint32_t peer, rank;
  std::vector<float> block;
  size_t used = 0;
};

/// `waiting` are the ranks of other hosts that lack a file which this process
/// is the sender of, ascending. Looks at all pairs of rank and file, which are
/// many only where ranks are.
RemoteFiles::RemoteFiles(Executor &executor, const HostGroups &groups,
                         const FilesByHost &files,
                         const CheckpointReader &reader)
    : executor(executor), groups(groups), files(files), reader(reader),
      hostsOf(reader.index().files.size()) {
  for (uint32_t file = 0; file < hostsOf.size(); ++file)
    for (uint32_t host = 0; host < groups.hosts(); ++host)
      if (files[host][file])
        hostsOf[file].push_back(host);
  if (groups.hosts() == 1)
    return;
  const RankSpread &spread = executor.processes()->spread();
  for (uint32_t rank = 0; rank < spread.ranks; ++rank) {
    uint32_t host = groups.hostOf(spread.processOf(rank));
    bool isServed = false;
    for (uint32_t file = 0; host != groups.host() && file < hostsOf.size();
         ++file)
      isServed |=
          !files[host][file] && senderTo(host, file) == groups.process();
    if (isServed)
      waiting.push_back(rank);
  }
}

uint32_t RemoteFiles::senderTo(uint32_t host, uint32_t file) const {
  // Neighbouring files, and hosts that lack the same one, ask different ones.
  const std::vector<uint32_t> &all = hostsOf[file];
  uint32_t other = all[(file + host) % all.size()];
  return groups.firstOf(other) + (file + host) % groups.sizeOf(other);
}

/// A stream from each sender, opened when the rank first needs one. They
/// outlive a single cursor, since a block may hold the end of one slot and the
/// beginning of the next; the copies of the returned function share them.
CheckpointReader::Fetch RemoteFiles::fetchFor(uint32_t rank) {
  auto streams = std::make_shared<std::map<uint32_t, BlockReceiver>>();
  return [this, rank, streams](uint32_t file, std::span<float> target) {
    uint32_t peer = senderTo(groups.host(), file);
    MpiEngine &engine = *executor.processes()->engine();
    auto [found, isNew] = streams->try_emplace(
        peer, engine, peer, rank, blockElements(groups.processes()));
    return found->second.read(target);
  };
}

/// Sends what `rank` asks for, as far as it is in files that it gets from here.
/// Follows the rank through its shards and slots:
/// 1. a slot none of whose files are sent from here is passed over: the rank
///    will not ask this process for any of it;
/// 2. of all others each run of elements is looked up in the order in which the
///    rank looks it up, and what lies in files that are sent from here is read
///    into the block. The rank gets the rest from its own host, or from other
///    senders.
Status RemoteFiles::sendShards(uint32_t rank, BlockSender &out) {
  uint32_t host = groups.hostOf(executor.processes()->spread().processOf(rank));
  auto isSent = [&](uint32_t file) {
    return !files[host][file] && senderTo(host, file) == groups.process();
  };
  RankArena arena(executor.mesh(), rank);
  const auto *shards = executor.program(rank).shards();
  for (uint32_t i = 0; i < plan::length(shards); ++i) {
    const fb::Shard &shard = *shards->Get(i);
    const fb::Parameter &parameter =
        *executor.plan().parameters()->Get(shard.parameter());
    auto visit = [&](const std::string &name, auto set) {
      const auto *known = reader.find(parameter.file_name()->str(), name);
      if (!known)
        return Status::success(); // begins at zero
      const auto &slot = *known;
      // 1.
      if (std::none_of(slot.files.begin(), slot.files.end(), isSent))
        return Status::success();
      CheckpointReader::Cursor cursor(reader, slot);
      return set([&](int64_t begin, std::span<float> target) {
        // 2. `target` is never read: the arena has no device.
        for (size_t done = 0; done < target.size();) {
          size_t most = out.room(target.size() - done).size();
          auto found = cursor.find(begin + done, most);
          if (!found.ok())
            return found.status();
          done += found->count;
          if (!isSent(cursor.fileOf(*found)))
            continue;
          cursor.readFound(*found, out.room(found->count));
          PLAIT_RETURN_IF_ERROR(out.add(found->count));
        }
        return Status::success();
      });
    };
    PLAIT_RETURN_IF_ERROR(forEachSlot(arena, shard, parameter, visit));
  }
  return Status::success();
}

Status RemoteFiles::sendTo(uint32_t rank) {
  Rendezvous &processes = *executor.processes();
  BlockSender out(*processes.engine(), processes.spread().processOf(rank), rank,
                  blockElements(groups.processes()));
  PLAIT_RETURN_IF_ERROR(sendShards(rank, out));
  return out.finish();
}

/// Each sender takes the lowest rank that nobody has taken. The lowest rank
/// that is not done is then always being served by all of its senders, which is
/// why none of them waits for ever.
void RemoteFiles::startSending() {
  for (size_t i = 0; i < std::min(mostAtOnce, waiting.size()); ++i)
    senders.push_back(std::async(std::launch::async, [this] {
      for (size_t mine = next++; mine < waiting.size(); mine = next++)
        PLAIT_RETURN_IF_ERROR(sendTo(waiting[mine]));
      return Status::success();
    }));
}

Status RemoteFiles::finishSending() {
  Status result = Status::success();
  for (std::future<Status> &sender : senders)
    if (Status status = sender.get(); !status.ok())
      result = status;
  senders.clear();
  return result;
}

/// Runs on the thread of the rank. Each slot has a cursor of its own; `fetch`
/// is common to all of them.
static Status loadRank(Executor &executor, uint32_t rank,
                       const CheckpointReader &reader,
                       const CheckpointReader::Fetch &fetch) {
  const auto *shards = executor.program(rank).shards();
  for (uint32_t i = 0; i < plan::length(shards); ++i) {
    const fb::Shard &shard = *shards->Get(i);
    const fb::Parameter &parameter =
        *executor.plan().parameters()->Get(shard.parameter());
    auto visit = [&](const std::string &name, auto set) {
      const auto *slot = reader.find(parameter.file_name()->str(), name);
      if (!slot) // begins at zero
        return set([](int64_t, std::span<float> target) {
          std::ranges::fill(target, 0.0f);
          return Status::success();
        });
      CheckpointReader::Cursor cursor(reader, *slot, fetch);
      return set([&](int64_t begin, std::span<float> target) {
        return cursor.read(begin, target);
      });
    };
    PLAIT_RETURN_IF_ERROR(
        forEachSlot({executor, rank}, shard, parameter, visit));
  }
  return Status::success();
}

Status runtime::load(Executor &executor, const CheckpointReader &reader,
                     RemoteFiles *remote) {
  if (remote)
    remote->startSending();
  Status loaded = executor.forEachRank([&](uint32_t rank) {
    return loadRank(executor, rank, reader,
                    remote ? remote->fetchFor(rank)
                           : CheckpointReader::Fetch());
  });
  if (!remote)
    return loaded;
  // Who sends to a rank that has failed would wait for it.
  if (!loaded.ok())
    executor.processes()->disconnect();
  Status sent = remote->finishSending();
  return loaded.ok() ? sent : loaded;
}

//===- Weights.cpp - Parameters into and out of a running plan ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whatever enters or leaves an arena does so by pieces: the part of a parameter
// that one rank has, of which Slices.h says where its elements lie in the file
// and Windows.h moves 4 MiB at a time, so that loading and saving need no
// second copy of a block. Ranks write their own pieces side by side. What is
// read comes together in the process of rank 0 by the Collector below: there is
// no collective for it, as the ranks that own something differ from parameter
// to parameter.
//
// File formats are Safetensors.h's, what a name means is WeightFiles::find's.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Weights.h"

#include "AdapterFolder.h"
#include "FileLayout.h"
#include "Processes.h"
#include "Shards.h"
#include "plait/Plan/Defaults.h"
#include "plait/Plan/Json.h"
#include "plait/Plan/Masters.h"
#include "plait/Plan/ModelFolder.h"
#include "plait/Runtime/Device.h"
#include "plait/Runtime/Random.h"
#include "plait/Runtime/Rendezvous.h"
#include "plait/Runtime/Slices.h"
#include "plait/Support/BFloat16.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

using namespace plait;
using namespace plait::runtime;

namespace {

/// Names that transformers looks for in a folder.
constexpr char fileName[] = "model.safetensors";
constexpr char configName[] = "config.json";

/// Sets the weights of `shard`, which the rank has all of, to `block`.
Status storeShard(const RankArena &arena, const fb::Shard &shard,
                  std::span<const float> block) {
  if (!plan::isRounded(shard))
    PLAIT_RETURN_IF_ERROR(arena.write(shard.weight(), std::as_bytes(block)));
  return storeCopy(arena, shard, 0, block);
}

/// A copy on the host of the elements of `piece`: of weights that are computed
/// with in bf16 they are the master copy, unless there is none.
Result<std::vector<float>> copyPiece(Executor &executor, uint32_t rank,
                                     const Piece &piece) {
  std::vector<float> block(piece.part.count);
  PLAIT_RETURN_IF_ERROR(readPiece(executor.device(rank), piece, 0, block));
  return block;
}

/// Does `job`, in which processes wait for each other's blocks: its failure
/// makes the others fail as well. Without the disconnection, the process of
/// rank 0 would wait in receiveFrom() for a sender that has failed until its
/// time limit.
Status collectTogether(Executor &executor, const std::function<Status()> &job) {
  return doTogether(executor, [&] {
    Status status = job();
    if (Rendezvous *processes = executor.processes(); processes && !status.ok())
      processes->disconnect();
    return status;
  });
}

/// Brings blocks of all ranks to the process of rank 0. Three rules make the
/// result independent of the number of processes: only owners send, of replicas
/// only the first, and windows of a rank come in the order of its shards. Ranks
/// are received one after the other, so that one connection and one window of
/// memory are enough; senders wait meanwhile.
class Collector {
public:
  /// The wanted tensor of a shard, if one is wanted.
  using Place = std::function<std::optional<ShardTensor>(const fb::Shard &)>;
  using Use = std::function<Status(
      uint32_t rank, const fb::Shard &shard, const fb::Parameter &parameter,
      const Piece &piece, const std::vector<float> &elements)>;

  /// `use` gets each element of site `site` once, whatever the number of its
  /// copies; only in the process of rank 0, but there from several threads.
  Collector(Executor &executor, Place place, Use use, uint32_t site = 0)
      : executor(executor), place(std::move(place)), use(std::move(use)),
        site(site) {}

  /// All processes call this.
  /// 1. In the process of rank 0 each thread hands the windows of its rank to
  ///    `use`.
  /// 2. Then this process receives those of all ranks that are not its own, in
  ///    ascending order. They begin behind its last one: the ranks of a process
  ///    are consecutive, and rank 0 is in the first process.
  /// 3. The others send theirs in that order, each on its own thread.
  Status run() {
    if (executor.leads()) {
      PLAIT_RETURN_IF_ERROR(
          forEachShard(executor, [this](uint32_t rank, const fb::Shard &shard,
                                        const fb::Parameter &parameter) {
            return forEachBlock(rank, shard, parameter, use);
          }));
      for (uint32_t rank = executor.ranks().back() + 1;
           executor.processes() && rank < executor.mesh().ranks(); ++rank)
        PLAIT_RETURN_IF_ERROR(receiveFrom(rank));
      return Status::success();
    }
    Use send = [this](uint32_t rank, const fb::Shard &, const fb::Parameter &,
                      const Piece &, const std::vector<float> &block) {
      return executor.processes()->sendToFirst(rank,
                                               std::as_bytes(std::span(block)));
    };
    for (uint32_t turn : executor.ranks())
      PLAIT_RETURN_IF_ERROR(
          forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                     const fb::Parameter &parameter) {
            return rank == turn ? forEachBlock(rank, shard, parameter, send)
                                : Status::success();
          }));
    return Status::success();
  }

private:
  /// Visits what is wanted of `shard` of a rank of this process, window by
  /// window.
  Status forEachBlock(uint32_t rank, const fb::Shard &shard,
                      const fb::Parameter &parameter, const Use &job) {
    return forEachWindow(
        wanted(rank, shard, parameter), [&](const Piece &window) {
          auto block = copyPiece(executor, rank, window);
          return block.ok() ? job(rank, shard, parameter, window, *block)
                            : block.status();
        });
  }

  /// The blocks of `rank`, in the order in which its process sends them.
  /// Repeats the walk of the sender, whose program is known from the plan:
  /// messages carry elements only and no description.
  Status receiveFrom(uint32_t rank) {
    const auto *shards = executor.program(rank).shards();
    for (uint32_t i = 0; i < plan::length(shards); ++i) {
      const fb::Shard &shard = *shards->Get(i);
      const fb::Parameter &parameter =
          *executor.plan().parameters()->Get(shard.parameter());
      PLAIT_RETURN_IF_ERROR(forEachWindow(
          wanted(rank, shard, parameter), [&](const Piece &window) {
            std::vector<float> block(window.part.count);
            PLAIT_RETURN_IF_ERROR(executor.processes()->receiveFrom(
                rank, std::as_writable_bytes(std::span(block))));
            return use(rank, shard, parameter, window, block);
          }));
    }
    return Status::success();
  }

  /// Nobody has a second copy of a whole block.
  template <typename Job>
  static Status forEachWindow(const std::optional<Piece> &piece, Job job) {
    int64_t count = piece ? piece->part.count : 0;
    for (int64_t begin = 0; begin < count; begin += windowElements)
      PLAIT_RETURN_IF_ERROR(
          job(piece->slice(begin, std::min(windowElements, count - begin))));
    return Status::success();
  }

  /// One of all copies of an element is wanted.
  std::optional<Piece> wanted(uint32_t rank, const fb::Shard &shard,
                              const fb::Parameter &parameter) const {
    std::optional<ShardTensor> tensor = place(shard);
    const plan::RankGrid &mesh = executor.mesh();
    uint32_t axis = mesh.sitesAxis();
    if (!shard.owner() || !tensor || (axis && mesh.index(rank, axis) != site))
      return std::nullopt;
    plan::Sharing sharing = tensor->sharing;
    sharing.ownAxis = axis;
    if (!plan::isFirstReplica(mesh, rank, shard, sharing))
      return std::nullopt;
    Piece piece(mesh, rank, shard, parameter, *tensor);
    return piece.part.count ? std::optional(piece) : std::nullopt;
  }

  Executor &executor;
  Place place;
  Use use;
  uint32_t site;
};

/// A tensor of parameter `index` in the process of rank 0; weights of several
/// sites as their mean. Blocks of a site are disjoint, so that its ranks write
/// side by side; sites come one after the other, as their sum is computed.
Result<std::vector<float>> collect(Executor &executor, uint32_t index,
                                   const Collector::Place &place,
                                   uint32_t sites) {
  const fb::Parameter &parameter = *executor.plan().parameters()->Get(index);
  std::vector<float> result(executor.leads() ? elementCount(*parameter.shape())
                                             : 0);
  uint32_t site = 0;
  auto add = [&](uint32_t rank, const fb::Shard &, const fb::Parameter &,
                 const Piece &piece, const std::vector<float> &block) {
    forEachParameterRun(
        executor.mesh(), rank, parameter, piece.splits, [&](const Run &whole) {
          Run run = clip(whole, piece.part);
          for (int64_t i = 0; i < run.count; ++i) {
            float &value = result[run.global + i];
            // The first one is copied: zeros keep their signs.
            value = site ? value + block[run.local + i] : block[run.local + i];
          }
        });
    return Status::success();
  };
  for (; site < sites; ++site)
    PLAIT_RETURN_IF_ERROR(Collector(executor, place, add, site).run());
  for (float &value : result)
    value /= float(sites);
  return result;
}

/// Hands the means of all saved weights to `use`, cut as the first site's ranks
/// have them. Whole parameters come one by one: no rank has room for all of
/// them.
Status collectMeans(Executor &executor, const Collector::Use &use) {
  const plan::RankGrid &mesh = executor.mesh();
  const auto &parameters = *executor.plan().parameters();
  for (uint32_t i = 0; i < parameters.size(); ++i) {
    if (!isSaved(executor.plan(), *parameters.Get(i)))
      continue;
    auto values = collect(
        executor, i,
        [&](const fb::Shard &shard) {
          return shard.parameter() == i ? std::optional(weightOf(shard))
                                        : std::nullopt;
        },
        mesh.sites());
    if (!values.ok())
      return values.status();
    for (uint32_t rank = 0;
         executor.leads() && rank < mesh.ranks() / mesh.sites(); ++rank)
      for (const fb::Shard *shard : *executor.program(rank).shards()) {
        ShardTensor weight = weightOf(*shard);
        if (shard->parameter() != i || !shard->owner() ||
            !plan::isFirstReplica(mesh, rank, *shard, weight.sharing))
          continue;
        const fb::Parameter &parameter = *parameters.Get(i);
        Piece piece(mesh, rank, *shard, parameter, weight);
        PLAIT_RETURN_IF_ERROR(
            use(rank, *shard, parameter, piece,
                cutOut(mesh, rank, parameter, piece, *values)));
      }
  }
  return Status::success();
}

/// Hands all saved weights to `use`, in the process of rank 0: all processes
/// call it.
Status collectWeights(Executor &executor, const Collector::Use &use) {
  if (executor.mesh().sites() > 1)
    return collectMeans(executor, use);
  auto place = [&](const fb::Shard &shard) {
    const fb::Plan &plan = executor.plan();
    bool isWanted = isSaved(plan, *plan.parameters()->Get(shard.parameter()));
    return isWanted ? std::optional(weightOf(shard)) : std::nullopt;
  };
  return Collector(executor, place, use).run();
}

/// The config.json of the plan, for weights in `type`. Readers take the type
/// that it names for that of the weights. Everything else of the text stays
/// byte for byte unless a type has to change, and then in its order, for which
/// the JSON is an ordered one.
std::string makeConfig(const fb::Plan &plan, FileTensor::Type type) {
  const char *word = type == FileTensor::Type::F32 ? "float32" : "bfloat16";
  std::string text = plan.config()->str();
  auto json = parseJson<nlohmann::ordered_json>(
      {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  bool changed = false;
  for (const char *key : {"torch_dtype", "dtype"})
    if (json.ok() && json->is_object() && json->contains(key) &&
        (*json)[key] != word) {
      (*json)[key] = word;
      changed = true;
    }
  return changed ? json->dump(2) + "\n" : text;
}

/// Files that a tokenizer may consist of, or that say how text is generated.
constexpr const char *tokenizerNames[] = {
    "added_tokens.json", "chat_template.jinja",     "generation_config.json",
    "merges.txt",        "special_tokens_map.json", "tokenizer.json",
    "tokenizer.model",   "tokenizer_config.json",   "vocab.json",
    "vocab.txt"};

/// Writes the files beside the weights, not yet under their names. They are
/// committed after the weights: a folder with a configuration always has its
/// weights. On a failure the destructors remove what was written.
Result<std::vector<OutputFile>> writeCompanions(const fb::Plan &plan,
                                                const std::string &directory,
                                                const std::string &origin,
                                                FileTensor::Type type) {
  std::vector<OutputFile> files;
  // Written aside, as the weights are.
  auto add = [&](const char *name, std::span<const uint8_t> bytes) {
    auto file = OutputFile::create(directory + "/" + name);
    if (!file.ok())
      return file.status();
    PLAIT_RETURN_IF_ERROR(file->writeAt(0, bytes));
    files.push_back(std::move(*file));
    return Status::success();
  };
  auto addText = [&](const char *name, const std::string &text) {
    return add(name,
               {reinterpret_cast<const uint8_t *>(text.data()), text.size()});
  };
  // Who opens an adapter has the model.
  if (hasAdapters(plan)) {
    PLAIT_RETURN_IF_ERROR(
        addText(kAdapterConfig, makeAdapterConfig(plan, origin)));
    return files;
  }
  if (plan.config())
    PLAIT_RETURN_IF_ERROR(addText(configName, makeConfig(plan, type)));
  std::error_code error;
  std::string folder = origin.empty() ? "" : findModelFolder(origin);
  // What is not there is not missed: models have different ones.
  for (const char *name : tokenizerNames) {
    std::string path = folder + "/" + name;
    if (origin.empty() || !std::filesystem::is_regular_file(path, error))
      continue;
    auto file = MappedFile::open(path, "tokenizer");
    if (!file.ok())
      return file.status();
    PLAIT_RETURN_IF_ERROR(add(name, file->bytes()));
  }
  return files;
}

/// Does the part of saveWeights of the process of rank 0.
/// 1. Everything that can fail for reasons of the file system is created first,
///    before a byte has crossed the network.
/// 2. Each window is cut into the runs of the file tensor that it covers and
///    written there. Several threads write at once: runs are disjoint.
/// 3. Commit, weights first.
Status writeWeights(Executor &executor, const std::string &directory,
                    const std::string &origin, FileTensor::Type type) {
  PLAIT_RETURN_IF_ERROR(prepareToSave(directory));
  auto layout = FileLayout::of(executor.plan());
  if (!layout.ok())
    return layout.status();
  const char *name = hasAdapters(executor.plan()) ? kAdapterFile : fileName;
  auto writer =
      WeightWriter::create(directory + "/" + name, layout->tensors, type);
  if (!writer.ok())
    return writer.status();
  auto companions = writeCompanions(executor.plan(), directory, origin, type);
  if (!companions.ok())
    return companions.status();
  auto write = [&](uint32_t rank, const fb::Shard &shard,
                   const fb::Parameter &parameter, const Piece &piece,
                   const std::vector<float> &block) {
    Status status = Status::success();
    if (!isSaved(executor.plan(), parameter))
      return status;
    const auto &place = layout->byName.at(parameter.file_name()->str());
    // Runs are those of the rank's whole block; only what falls into the
    // window's part is there.
    forEachFileRun(
        executor.mesh(), rank, parameter, piece.splits, [&](const Run &whole) {
          Run run = clip(whole, piece.part);
          forEachTensor(
              place.each, run.global, run.count,
              [&](size_t tensor, int64_t begin, int64_t offset, int64_t count) {
                if (status.ok())
                  status = writer->write(
                      place.first + tensor, begin,
                      std::span(block).subspan(run.local + offset, count));
              });
        });
    return status;
  };
  PLAIT_RETURN_IF_ERROR(collectWeights(executor, write));
  PLAIT_RETURN_IF_ERROR(writer->commit());
  for (OutputFile &file : *companions)
    PLAIT_RETURN_IF_ERROR(file.commit());
  return Status::success();
}

} // namespace

/// Program and shards are those of the rank's stage; the job runs on the rank's
/// own thread, which may call its device.
Status runtime::forEachShard(Executor &executor, const ShardJob &job) {
  return executor.forEachRank([&](uint32_t rank) {
    const auto *shards = executor.program(rank).shards();
    for (uint32_t i = 0; i < plan::length(shards); ++i) {
      const fb::Shard &shard = *shards->Get(i);
      PLAIT_RETURN_IF_ERROR(job(
          rank, shard, *executor.plan().parameters()->Get(shard.parameter())));
    }
    return Status::success();
  });
}

/// Elements of a tensor of the file come from `source` and go to the arena
/// window by window; fillWindows() writes zeros where the block has padding,
/// which what is computed relies on.
Status runtime::setTensor(const RankArena &arena, const fb::Shard &shard,
                          const fb::Parameter &parameter,
                          const ShardTensor &tensor,
                          const ElementSource &source) {
  Piece piece(arena.mesh, arena.rank, shard, parameter, tensor);
  return fillWindows(arena.mesh, arena.rank, parameter, piece, source,
                     [&](int64_t begin, std::span<const float> window) {
                       return arena.write(piece.offset + begin * sizeof(float),
                                          std::as_bytes(window));
                     });
}

/// Sets what begins as the weight does, from `source` as well.
static Status setAnchors(const RankArena &arena, const fb::Shard &shard,
                         const fb::Parameter &parameter,
                         const ElementSource &source) {
  for (uint32_t i = 0; i < plan::length(shard.state()); ++i)
    if (const fb::StateSlot &slot = *shard.state()->Get(i); slot.from_weight())
      PLAIT_RETURN_IF_ERROR(
          setTensor(arena, shard, parameter, stateOf(shard, slot), source));
  return Status::success();
}

/// A rank that has all of the weights in f32 makes the copy in bf16 of them.
/// With divided optimizer state it has only a part of these, but all of the
/// copy, for which `source` is asked a second time.
Status runtime::setWeights(const RankArena &arena, const fb::Shard &shard,
                           const fb::Parameter &parameter,
                           const ElementSource &source) {
  ShardTensor weight = weightOf(shard);
  bool hasCopy = shard.compute_dtype() == fb::DType::BF16;
  PLAIT_RETURN_IF_ERROR(setAnchors(arena, shard, parameter, source));
  if (!hasCopy || weight.sharing.isDivided)
    PLAIT_RETURN_IF_ERROR(setTensor(arena, shard, parameter, weight, source));
  if (!hasCopy)
    return Status::success();
  // The whole block, of which the rank may have a part in f32.
  Piece block(arena.mesh, arena.rank, shard, parameter,
              {shard.compute_weight(), {}});
  return fillWindows(arena.mesh, arena.rank, parameter, block, source,
                     [&](int64_t begin, std::span<const float> window) {
                       if (!weight.sharing.isDivided && !weight.isRounded)
                         PLAIT_RETURN_IF_ERROR(
                             arena.write(weight.offset + begin * sizeof(float),
                                         std::as_bytes(window)));
                       return storeCopy(arena, shard, begin, window);
                     });
}

/// Makes the numbers that a parameter begins with. What no file of weights has
/// depends on no seed, so that it begins alike with weights and without.
static ElementSource makeInitial(const fb::Parameter &parameter, uint64_t seed,
                                 unsigned threads) {
  return [&parameter, threads,
          normals = std::make_shared<NormalStream>(
              parameter.unsaved() ? 0 : seed,
              parameter.file_name()->string_view(), parameter.init_value(),
              parameter.init_std())](int64_t begin, std::span<float> target) {
    if (parameter.init() == fb::InitKind::Constant)
      std::fill(target.begin(), target.end(), parameter.init_value());
    else
      normals->generate(begin, target, threads);
    return Status::success();
  };
}

/// Every rank reads the elements of its own block from the mapped files: no
/// rank sees the whole model. Pages are released now and then, since a file of
/// the model's size would else stay in memory beside the arenas.
Status runtime::loadWeights(Executor &executor, const WeightFiles &files,
                            uint64_t seed) {
  // All names and shapes first: a missing tensor is reported at once.
  Result<std::vector<FileTensors>> found = findTensors(executor.plan(), files);
  if (!found.ok())
    return found.status();
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    if ((*found)[shard.parameter()].tensors.empty())
      return setWeights({executor, rank}, shard, parameter,
                        makeInitial(parameter, seed, 1));
    // By thread: each releases after a window of its own.
    int64_t read = 0;
    return setWeights({executor, rank}, shard, parameter,
                      [&](int64_t begin, std::span<float> target) {
                        (*found)[shard.parameter()].read(begin, target);
                        if ((read += target.size()) >= windowElements) {
                          files.release();
                          read = 0;
                        }
                        return Status::success();
                      });
  });
}

/// The generator is made for each shard and thread; as it counts elements of
/// the file's tensor, a tied or split parameter gets the same numbers
/// everywhere.
Status runtime::initializeWeights(Executor &executor, uint64_t seed) {
  unsigned threads = std::max<unsigned>(1, std::thread::hardware_concurrency() /
                                               executor.ranks().size());
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    return setWeights({executor, rank}, shard, parameter,
                      makeInitial(parameter, seed, threads));
  });
}

/// The temporary file that is made, and removed at once, shows that the
/// directory can be written to.
Status runtime::prepareToSave(const std::string &directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return fail("cannot make directory '", directory, "': ", error.message());
  return OutputFile::create(directory + "/" + fileName).status();
}

/// Processes other than that of rank 0 run the same Collector, whose windows go
/// out by sendToFirst(): `use` is never called there.
Status runtime::saveWeights(Executor &executor, const std::string &directory,
                            const std::string &origin, FileTensor::Type type) {
  return collectTogether(executor, [&] {
    return executor.leads() ? writeWeights(executor, directory, origin, type)
                            : collectWeights(executor, nullptr);
  });
}

/// The sign of each change is a bit of Philox with the element and the shard in
/// the counter: a seed gives the same disturbance on every run. There is one
/// rank and so one thread, which makes pushing to `weights` safe.
Result<std::vector<std::vector<float>>>
runtime::disturbWeights(Executor &executor, uint64_t seed) {
  std::vector<std::vector<float>> weights;
  PLAIT_RETURN_IF_ERROR(
      forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                 const fb::Parameter &parameter) {
        Piece piece(executor.mesh(), rank, shard, parameter, weightOf(shard));
        auto block = copyPiece(executor, rank, piece);
        if (!block.ok())
          return block.status();
        weights.push_back(*block);
        uint32_t index = weights.size();
        for (uint64_t i = 0; i < block->size(); ++i) {
          auto words = philox({uint32_t(i), uint32_t(i >> 32), index, 0},
                              {uint32_t(seed), uint32_t(seed >> 32)});
          (*block)[i] *= words[0] & 1 ? 1 + 0x1p-9f : 1 - 0x1p-9f;
        }
        return storeShard({executor, rank}, shard, *block);
      }));
  return weights;
}

/// `weights` has the blocks in the order in which forEachShard visits them.
Status runtime::restoreWeights(Executor &executor,
                               const std::vector<std::vector<float>> &weights) {
  auto next = weights.begin();
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &) {
    return storeShard({executor, rank}, shard, *next++);
  });
}

/// Frozen parameters are the same in all processes, so that leaving early here
/// leaves nobody waiting.
Result<std::vector<float>> runtime::gatherTensor(Executor &executor,
                                                 uint32_t parameter,
                                                 ParameterTensor kind) {
  const fb::Parameter &found = *executor.plan().parameters()->Get(parameter);
  bool isGradient = kind == ParameterTensor::Gradient;
  if (found.frozen() && isGradient)
    return std::vector<float>();
  // Shards of other parameters have no part in it.
  auto place = [&](const fb::Shard &shard) {
    return shard.parameter() == parameter
               ? std::optional(isGradient ? gradientOf(shard) : weightOf(shard))
               : std::nullopt;
  };
  Result<std::vector<float>> result = std::vector<float>();
  PLAIT_RETURN_IF_ERROR(collectTogether(executor, [&] {
    result = collect(executor, parameter, place,
                     isGradient ? 1 : executor.mesh().sites());
    return result.status();
  }));
  return result;
}

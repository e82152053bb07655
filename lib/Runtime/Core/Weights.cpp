//===- Weights.cpp - Parameters into and out of a running plan ------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Weights.h"

#include "plait/Runtime/Device.h"
#include "plait/Runtime/Random.h"
#include "plait/Runtime/Slices.h"

#include <filesystem>
#include <map>

using namespace plait;
using namespace plait::runtime;

namespace {

constexpr char fileName[] = "model.safetensors";

std::span<const int64_t> shapeOf(const flatbuffers::Vector<int64_t> &shape) {
  return {shape.data(), shape.size()};
}

using ShardJob = std::function<Status(uint32_t rank, const fb::Shard &shard,
                                      const fb::Parameter &parameter)>;

/// Calls `job` for all shards of all ranks, on the threads of the ranks.
Status forEachShard(Executor &executor, const ShardJob &job) {
  return executor.forEachRank([&](uint32_t rank) {
    const auto *shards = executor.program(rank).shards();
    for (uint32_t i = 0; shards && i < shards->size(); ++i) {
      const fb::Shard &shard = *shards->Get(i);
      PLAIT_RETURN_IF_ERROR(job(
          rank, shard, *executor.plan().parameters()->Get(shard.parameter())));
    }
    return Status::success();
  });
}

/// Fills the weights of `shard` with what `read(file index, target)` gives.
template <typename Read>
Status writeShard(Executor &executor, uint32_t rank, const fb::Shard &shard,
                  const fb::Parameter &parameter, Read read) {
  std::vector<float> block(elementCount(*shard.local_shape()));
  forEachFileRun(executor.mesh(), rank, parameter, shard, [&](const Run &run) {
    read(run.global, std::span(block).subspan(run.local, run.count));
  });
  return executor.device(rank).write(shard.weight(),
                                     std::as_bytes(std::span(block)));
}

Result<std::vector<float>> readShard(Executor &executor, uint32_t rank,
                                     const fb::Shard &shard, uint64_t offset) {
  std::vector<float> block(elementCount(*shard.local_shape()));
  PLAIT_RETURN_IF_ERROR(executor.device(rank).read(
      offset, std::as_writable_bytes(std::span(block))));
  return block;
}

/// Of all copies of a block, one is written out.
bool isWritten(const Executor &executor, uint32_t rank,
               const fb::Shard &shard) {
  return shard.owner() && plan::isFirstReplica(executor.mesh(), rank, shard);
}

} // namespace

Status runtime::loadWeights(Executor &executor, const WeightFiles &files) {
  // All names and shapes first: a missing tensor is reported at once.
  std::vector<const FileTensor *> tensors;
  for (const fb::Parameter *parameter : *executor.plan().parameters()) {
    auto tensor = files.find(parameter->file_name()->str(),
                             shapeOf(*parameter->file_shape()));
    if (!tensor.ok())
      return tensor.status();
    tensors.push_back(*tensor);
  }
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    return writeShard(executor, rank, shard, parameter,
                      [&](int64_t begin, std::span<float> target) {
                        tensors[shard.parameter()]->read(begin, target);
                      });
  });
}

Status runtime::initializeWeights(Executor &executor, uint64_t seed) {
  return forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                    const fb::Parameter &parameter) {
    NormalStream normals(seed, parameter.file_name()->string_view(),
                         parameter.init_value(), parameter.init_std());
    bool constant = parameter.init() == fb::InitKind::Constant;
    return writeShard(executor, rank, shard, parameter,
                      [&](int64_t begin, std::span<float> target) {
                        if (constant)
                          std::fill(target.begin(), target.end(),
                                    parameter.init_value());
                        else
                          normals.generate(begin, target);
                      });
  });
}

Status runtime::prepareToSave(const std::string &directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return fail("cannot make directory '", directory, "': ", error.message());
  return OutputFile::create(directory + "/" + fileName).status();
}

Status runtime::saveWeights(Executor &executor, const std::string &directory) {
  PLAIT_RETURN_IF_ERROR(prepareToSave(directory));
  // Several parameters may be parts of one tensor of the file.
  std::vector<WeightWriter::Tensor> tensors;
  std::map<std::string, size_t> byName;
  for (const fb::Parameter *parameter : *executor.plan().parameters()) {
    std::string name = parameter->file_name()->str();
    auto shape = shapeOf(*parameter->file_shape());
    auto [known, isNew] = byName.emplace(name, tensors.size());
    if (isNew)
      tensors.push_back({name, {shape.begin(), shape.end()}});
    else if (!std::equal(shape.begin(), shape.end(),
                         tensors[known->second].shape.begin(),
                         tensors[known->second].shape.end()))
      return fail("parameter '", parameter->name()->str(), "' is in '", name,
                  "' of shape ", formatShape(shape), ", another one in ",
                  formatShape(tensors[known->second].shape));
  }
  auto writer = WeightWriter::create(directory + "/" + fileName, tensors);
  if (!writer.ok())
    return writer.status();
  PLAIT_RETURN_IF_ERROR(
      forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                 const fb::Parameter &parameter) {
        Status status = Status::success();
        if (!isWritten(executor, rank, shard))
          return status;
        size_t tensor = byName.at(parameter.file_name()->str());
        auto block = readShard(executor, rank, shard, shard.weight());
        if (!block.ok())
          return block.status();
        forEachFileRun(executor.mesh(), rank, parameter, shard,
                       [&](const Run &run) {
                         if (status.ok())
                           status = writer->write(
                               tensor, run.global,
                               std::span(*block).subspan(run.local, run.count));
                       });
        return status;
      }));
  return writer->commit();
}

Result<std::vector<float>> runtime::gatherGradient(Executor &executor,
                                                   uint32_t parameter) {
  const fb::Parameter &found = *executor.plan().parameters()->Get(parameter);
  std::vector<float> result(elementCount(*found.shape()));
  // The blocks are disjoint, so the ranks write side by side.
  Status status =
      forEachShard(executor, [&](uint32_t rank, const fb::Shard &shard,
                                 const fb::Parameter &) {
        if (shard.parameter() != parameter || !isWritten(executor, rank, shard))
          return Status::success();
        auto block = readShard(executor, rank, shard, shard.gradient());
        if (!block.ok())
          return block.status();
        forEachParameterRun(executor.mesh(), rank, found, shard,
                            [&](const Run &run) {
                              std::copy_n(block->begin() + run.local, run.count,
                                          result.begin() + run.global);
                            });
        return Status::success();
      });
  if (!status.ok())
    return status;
  return result;
}

//===- MpiRendezvous.cpp - Processes that meet over MPI -------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MpiRendezvous.h"

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string_view>

using namespace plait;
using namespace plait::runtime;

namespace {

constexpr uint32_t textTag = 0, firstRankTag = 1; // on MpiChannel::Control

/// Beside the program, or where it was installed.
Result<MpiLibrary *> openLibrary() {
  constexpr char name[] = "plait-mpi.so";
  std::error_code error;
  std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string path = folder / name;
  if (const char *named = std::getenv("PLAIT_MPI"); named && *named)
    path = named;
  else if (!std::filesystem::exists(path, error))
    path = folder.parent_path() / PLAIT_LIBRARY_FOLDER / name;
  // Libraries that MPI opens by itself look for its symbols.
  void *handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  void *symbol = handle ? dlsym(handle, openMpiLibraryName) : nullptr;
  if (!symbol)
    return fail("cannot open MPI: ", dlerror());
  return reinterpret_cast<OpenMpiLibrary *>(symbol)();
}

/// MPI takes what it only reads without const.
template <typename T> Region regionOf(T *data, size_t count) {
  return {
      reinterpret_cast<std::byte *>(const_cast<std::remove_const_t<T> *>(data)),
      int64_t(count * sizeof(T))};
}

} // namespace

Result<std::unique_ptr<MpiRendezvous>>
MpiRendezvous::join(const Launch &launch, std::chrono::milliseconds timeLimit) {
  auto library = openLibrary();
  if (!library.ok())
    return library.status();
  auto engine =
      MpiEngine::start(std::unique_ptr<MpiLibrary>(*library), timeLimit);
  if (!engine.ok())
    return engine.status();
  const MpiLibrary::World &world = (*engine)->world();
  ProcessPlace place = {launch.launcher,  world.index, world.count,
                        world.localIndex, world.host,  world.hosts,
                        world.processors};
  std::unique_ptr<MpiRendezvous> result(
      new MpiRendezvous(std::move(place), std::move(*engine), timeLimit));
  if (result->place().count != launch.ranks)
    return fail(launch.launcher, " started ", launch.ranks,
                " processes, MPI knows of ", result->place().count,
                ": is it another MPI's launcher?");
  return result;
}

MpiRendezvous::~MpiRendezvous() {
  if (!mpi->leave())
    (void)mpi.release();
}

Status MpiRendezvous::run(std::vector<MpiTransfer> transfers) {
  return mpi->run(std::move(transfers), timeLimit);
}

Result<std::vector<uint64_t>>
MpiRendezvous::exchangeSizes(const std::string &mine) {
  uint64_t size = mine.size();
  std::vector<uint64_t> sizes(here.count);
  MpiTransfer transfer;
  transfer.kind = MpiTransfer::Kind::AllGather;
  transfer.region = regionOf(&size, 1);
  transfer.all = reinterpret_cast<std::byte *>(sizes.data());
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  return sizes;
}

Result<std::vector<std::string>>
MpiRendezvous::exchange(const std::string &mine) {
  auto sizes = exchangeSizes(mine);
  if (!sizes.ok())
    return sizes.status();
  // Most of the time nobody has anything to say.
  if (std::all_of(sizes->begin(), sizes->end(),
                  [](uint64_t size) { return size == 0; }))
    return std::vector<std::string>(here.count);
  return Rendezvous::exchange(mine);
}

Result<std::vector<std::string>>
MpiRendezvous::gather(const std::string &mine) {
  auto sizes = exchangeSizes(mine);
  if (!sizes.ok())
    return sizes.status();
  std::vector<std::string> texts;
  std::vector<MpiTransfer> transfers;
  auto add = [&](MpiTransfer::Kind kind, uint32_t peer, Region region) {
    if (region.bytes)
      transfers.push_back(
          {kind, MpiChannel::Control, peer, textTag, region, nullptr});
  };
  if (here.index != 0) {
    add(MpiTransfer::Kind::Send, 0, regionOf(mine.data(), mine.size()));
  } else {
    for (uint64_t size : *sizes)
      texts.emplace_back(size, '\0');
    texts[0] = mine;
    for (uint32_t peer = 1; peer < here.count; ++peer)
      add(MpiTransfer::Kind::Receive, peer,
          regionOf(texts[peer].data(), texts[peer].size()));
  }
  PLAIT_RETURN_IF_ERROR(run(std::move(transfers)));
  return texts;
}

Result<std::string> MpiRendezvous::broadcast(const std::string &ofFirst) {
  uint64_t size = ofFirst.size();
  MpiTransfer transfer;
  transfer.kind = MpiTransfer::Kind::Broadcast;
  transfer.region = regionOf(&size, 1);
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  std::string text = here.index == 0 ? ofFirst : std::string(size, '\0');
  if (size == 0)
    return text;
  transfer.region = regionOf(text.data(), text.size());
  PLAIT_RETURN_IF_ERROR(run({transfer}));
  return text;
}

Status MpiRendezvous::sendToFirst(uint32_t rank,
                                  std::span<const std::byte> bytes) {
  return mpi->run(
      {{MpiTransfer::Kind::Send, MpiChannel::Control, 0, firstRankTag + rank,
        regionOf(bytes.data(), bytes.size()), nullptr}},
      MpiEngine::forEver);
}

Status MpiRendezvous::receiveFrom(uint32_t rank, std::span<std::byte> bytes) {
  return mpi->run({{MpiTransfer::Kind::Receive, MpiChannel::Control,
                    spread().processOf(rank), firstRankTag + rank,
                    regionOf(bytes.data(), bytes.size()), nullptr}},
                  MpiEngine::forEver);
}

void MpiRendezvous::disconnect() { mpi->abort(); }

bool MpiRendezvous::speaksOfFailure() {
  if (isAgreedFailure)
    return here.index == 0;
  mpi->abort();
  mpi->awaitHalt();
  return mpi->isFirstToFail();
}

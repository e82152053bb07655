//===- Container.cpp - The frame of a plan file ---------------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The frame of a plan file. Reading goes from the outside in: length, magic,
// version, level, hash, FlatBuffers' verifier, checkPlan(), the certificate;
// each relies on those before it, and nothing is used before all have passed.
// Writing makes the same checks, so that what this program writes it can read.
//
//===----------------------------------------------------------------------===//

#include "plait/Plan/Container.h"

#include "plait/Plan/Check.h"
#include "plait/Plan/Level.h"

#include <array>
#include <cstring>
#include <limits>
#include <sstream>

#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

using namespace plait;
using namespace plait::plan;

namespace {

/// Little-endian, 64 bytes, so that the payload behind it is aligned for every
/// number in it when the file is mapped.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t level; // that a reader needs (Level.h)
  uint64_t length;
  uint64_t hash;
  uint8_t padding[32];
};
static_assert(sizeof(Header) == containerHeaderBytes);

constexpr char magicWord[] = "PLAITPLN";

/// Numbers are in the byte order of the machine, which is little-endian.
Header headerOf(std::span<const uint8_t> payload, uint32_t level) {
  Header header = {};
  std::memcpy(header.magic, magicWord, sizeof(header.magic));
  header.version = containerVersion;
  header.level = level;
  header.length = payload.size();
  header.hash = XXH3_64bits(payload.data(), payload.size());
  return header;
}

/// Copied out of the file: the mapping may be of any length. At the end the
/// header is compared as a whole, which covers all bytes that must be zero.
Status checkHeader(std::span<const uint8_t> file) {
  Header found;
  if (file.size() < sizeof(Header))
    return fail("is truncated: ", file.size(), " bytes, the header alone has ",
                sizeof(Header));
  std::memcpy(&found, file.data(), sizeof(Header));
  if (std::memcmp(found.magic, magicWord, sizeof(found.magic)) != 0)
    return fail("is not a plan file");
  // Before lengths and hash, which another version may have elsewhere.
  if (found.version != containerVersion)
    return fail("has version ", found.version, ", this program reads version ",
                containerVersion);
  if (found.level > getFormatLevel())
    return fail("needs format level ", found.level,
                ", this program knows levels up to ", getFormatLevel(),
                ": a later plait has written it, and can run it");
  // Truncated and continued files are told apart from corrupt ones.
  auto payload = file.subspan(sizeof(Header));
  if (payload.size() < found.length)
    return fail("is truncated: the payload has ", payload.size(),
                " bytes, the header announces ", found.length);
  if (payload.size() > found.length)
    return fail("has ", payload.size() - found.length,
                " bytes after its payload");
  // One pass over the payload, which also brings it into memory.
  Header expected = headerOf(payload, found.level);
  if (found.hash != expected.hash)
    return fail("is corrupt: the hash of its payload differs");
  if (std::memcmp(&found, &expected, sizeof(Header)) != 0)
    return fail("is corrupt: its header has bytes set that must be zero");
  return Status::success();
}

/// References inside stay inside, and required fields are there; numbers may be
/// anything.
bool verifyBuffer(std::span<const uint8_t> payload) {
  // Long schedules have more tables than the verifier's default admits. The
  // schema itself is a few tables deep.
  constexpr flatbuffers::uoffset_t maxDepth = 64;
  constexpr auto maxTables = std::numeric_limits<uint32_t>::max();
  flatbuffers::Verifier verifier(payload.data(), payload.size(), maxDepth,
                                 maxTables);
  return payload.size() < FLATBUFFERS_MAX_BUFFER_SIZE &&
         fb::VerifyPlanBuffer(verifier);
}

} // namespace

/// Building goes in the order of the schema, so that the same plan gives the
/// same bytes. A builder that grows copies what it has, so that it begins with
/// room for what may be large.
static flatbuffers::FlatBufferBuilder build(const fb::PlanT &plan) {
  size_t room = (1 << 20) + plan.reference.size();
  for (const auto &data : plan.data)
    room += data->bytes.size();
  flatbuffers::FlatBufferBuilder builder(room);
  builder.Finish(fb::Plan::Pack(builder, &plan));
  return builder;
}

std::vector<uint8_t> plan::packPlan(const fb::PlanT &plan) {
  flatbuffers::FlatBufferBuilder builder = build(plan);
  return {builder.GetBufferPointer(),
          builder.GetBufferPointer() + builder.GetSize()};
}

/// Hashes all bytes of a payload but those eight in which its certificate has
/// the hash, so that nothing of the file can change beside it.
static uint64_t hashCertified(std::span<const uint8_t> payload) {
  using flatbuffers::Table;
  const uint8_t *own = flatbuffers::GetRoot<Table>(payload.data())
                           ->GetPointer<const Table *>(fb::Plan::VT_CERTIFICATE)
                           ->GetAddressOf(fb::Certificate::VT_PLAN);
  // A hash of 0 is not stored, and is that of no plan.
  size_t at = own ? own - payload.data() : payload.size();
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  XXH3_64bits_update(&state, payload.data(), at);
  if (own)
    XXH3_64bits_update(&state, own + sizeof(uint64_t),
                       payload.size() - at - sizeof(uint64_t));
  return XXH3_64bits_digest(&state);
}

/// Any number but 0 takes the eight bytes.
void plan::certifyPlan(fb::PlanT &plan) {
  plan.certificate->plan = 1;
  flatbuffers::FlatBufferBuilder builder = build(plan);
  plan.certificate->plan =
      hashCertified({builder.GetBufferPointer(), builder.GetSize()});
}

/// Checks that the plan is still the one of which something was proven, or
/// could not be.
static Status checkCertificate(std::span<const uint8_t> payload) {
  const fb::Certificate *certificate =
      fb::GetPlan(payload.data())->certificate();
  if (!certificate || certificate->plan() == hashCertified(payload))
    return Status::success();
  std::ostringstream out;
  out << std::hex << certificate->plan() << ", and this one is "
      << hashCertified(payload);
  return fail("it was changed: its certificate is of plan ", out.str());
}

/// Three cases: not asked for, not proven, proven.
std::string plan::describeProof(const fb::Plan &plan) {
  const fb::Certificate *certificate = plan.certificate();
  if (!certificate)
    return "none, nobody asked for one";
  if (certificate->unproven())
    return "none: " + certificate->unproven()->str();
  std::ostringstream out;
  out << certificate->prover()->str() << " has proven that it trains model "
      << std::hex << certificate->model();
  return out.str();
}

/// Everything is checked before the file is made.
Result<OutputFile> plan::preparePlan(const std::string &path,
                                     const fb::PlanT &plan) {
  std::vector<uint8_t> payload = packPlan(plan);
  if (!verifyBuffer(payload))
    return fail("cannot write '", path, "': the plan lacks a required field");
  // What this compiler writes is checked like what anybody else has written.
  PLAIT_RETURN_IF_ERROR(checkPlan(*fb::GetPlan(payload.data())));
  PLAIT_RETURN_IF_ERROR(checkCertificate(payload));

  auto header = std::bit_cast<std::array<uint8_t, sizeof(Header)>>(
      headerOf(payload, getLevel(*fb::GetPlan(payload.data()))));
  // Written aside and renamed: the file appears as a whole, or not at all.
  Result<OutputFile> file =
      OutputFile::create(path, OutputFile::Content::Binary);
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(file->writeAt(0, header));
  PLAIT_RETURN_IF_ERROR(file->writeAt(sizeof(Header), payload));
  return file;
}

Status plan::writePlan(const std::string &path, const fb::PlanT &plan) {
  Result<OutputFile> file = preparePlan(path, plan);
  return file.ok() ? file->commit() : file.status();
}

/// The header is copied out of the file, which need not be aligned for it.
static Header readHeader(std::span<const uint8_t> file) {
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  return header;
}

/// Taken from the header, which open() has compared with the payload.
uint64_t PlanFile::hash() const { return readHeader(file.bytes()).hash; }

/// A level below what the plan needs would let other readers go wrong.
static Status checkLevel(std::span<const uint8_t> file, const fb::Plan &plan) {
  uint32_t said = readHeader(file).level, needed = getLevel(plan);
  if (said == needed)
    return Status::success();
  return fail("is corrupt: its header says format level ", said,
              ", what it has needs level ", needed);
}

/// The mapping moves into the result, and `root` stays valid: it points into
/// it.
Result<PlanFile> PlanFile::open(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path, "plan");
  if (!file.ok())
    return file.status();
  if (Status status = checkHeader(file->bytes()); !status.ok())
    return fail("'", path, "' ", status.message());
  auto payload = file->bytes().subspan(sizeof(Header));
  if (!verifyBuffer(payload))
    return fail("'", path, "' is malformed: not a valid plan table");
  const fb::Plan *root = fb::GetPlan(payload.data());
  if (Status status = checkLevel(file->bytes(), *root); !status.ok())
    return fail("'", path, "' ", status.message());
  Status status = checkPlan(*root);
  if (status.ok())
    status = checkCertificate(payload);
  if (!status.ok())
    return fail("'", path, "' is unsound: ", status.message());
  return PlanFile(std::move(*file), root);
}

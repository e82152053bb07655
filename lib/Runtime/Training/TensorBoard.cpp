//===- TensorBoard.cpp - A run as TensorBoard's event files ---------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Writes TensorBoard's event files without its libraries. TensorBoard.h
// describes the format; what is here of protocol buffers is the few lines that
// scalars need. Each step is one record, flushed at once, so that a run that is
// killed leaves a file that can be read.
//
//===----------------------------------------------------------------------===//

#include "TensorBoard.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <unistd.h>

using namespace plait;
using namespace plait::runtime;

namespace {

/// The table of a reflected CRC: 0x82f63b78 is Castagnoli's polynomial, its
/// bits turned around.
constexpr std::array<uint32_t, 256> makeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit)
      value = value >> 1 ^ (value & 1 ? 0x82f63b78 : 0);
    table[byte] = value;
  }
  return table;
}

/// Returns bytes as they lie in memory: the machines that plait runs on are
/// little-endian, like the format.
template <typename T> std::string bytesOf(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

//===----------------------------------------------------------------------===//
// Protocol buffers, as far as events need them
//===----------------------------------------------------------------------===//

/// Seven bits a byte, the lowest first; the eighth says that more follow.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7)
    bytes += char(value | 0x80);
  return bytes + char(value);
}

enum WireType { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };

std::string key(uint32_t field, WireType type) {
  return varint(field << 3 | type);
}

std::string bytesField(uint32_t field, std::string_view bytes) {
  return key(field, Bytes) + varint(bytes.size()) + std::string(bytes);
}

/// Summary.value.
std::string scalar(const char *tag, double value) {
  return bytesField(1, bytesField(1, tag) + key(2, Fixed32) +
                           bytesOf(float(value)));
}

/// Masked, as TFRecord demands: a check sum of bytes that contain check sums is
/// a poor one.
std::string checkSum(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return bytesOf((crc >> 15 | crc << 17) + 0xa282ead8);
}

double secondsSinceEpoch() {
  return std::chrono::duration<double>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

} // namespace

/// A byte at a time. Records are some hundred bytes a step.
uint32_t runtime::crc32c(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> table = makeTable();
  uint32_t crc = ~0u;
  for (unsigned char byte : bytes)
    crc = crc >> 8 ^ table[(crc ^ byte) & 0xff];
  return ~crc;
}

/// A new file in each run: TensorBoard puts the files of a directory together,
/// by the time in their names. Host and process keep two runs apart.
Result<std::unique_ptr<Observer>>
TensorBoard::open(const std::string &directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    return fail("cannot make directory '", directory, "': ", error.message());
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  // TensorBoard looks for files with "tfevents" in their names.
  std::string path = directory + "/events.out.tfevents." +
                     std::to_string(uint64_t(secondsSinceEpoch())) + "." +
                     host + "." + std::to_string(getpid());
  std::FILE *file = std::fopen(path.c_str(), "wbe");
  if (!file)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return std::unique_ptr<Observer>(new TensorBoard(path, file));
}

Status TensorBoard::write(const std::string &content) {
  std::string event = key(1, Fixed64) + bytesOf(secondsSinceEpoch()) + content;
  std::string length = bytesOf(uint64_t(event.size()));
  std::string record = length + checkSum(length) + event + checkSum(event);
  if (std::fwrite(record.data(), 1, record.size(), file.get()) !=
          record.size() ||
      std::fflush(file.get()) != 0)
    return fail("cannot write '", path, "': ", std::strerror(errno));
  return Status::success();
}

Status TensorBoard::beginRun(const RunInfo &info) {
  run = &info;
  return write(bytesField(3, "brain.Event:2"));
}

Status TensorBoard::endStep(const StepReport &step) {
  std::string summary =
      scalar("train/loss", at(step.metrics, fb::Metric::Loss)) +
      scalar("train/grad_norm", at(step.metrics, fb::Metric::GradNorm)) +
      scalar("train/learning_rate", step.learningRate) +
      scalar("train/tokens_per_second", step.tokensPerSecond());
  if (double mfu = run->utilization.mfu(step.seconds))
    summary += scalar("train/mfu", mfu);
  auto addNamed = [&](const char *group, const StepMetrics &metrics) {
    std::vector<double> losses = getNamedLosses(run->plan, metrics);
    for (size_t i = 0; i < losses.size(); ++i) {
      std::string tag = group + run->plan.named_losses()->Get(i)->str();
      summary += scalar(tag.c_str(), losses[i]);
    }
  };
  addNamed("train/loss/", step.metrics);
  if (step.evaluation) {
    summary += scalar("eval/loss", step.evaluation->loss);
    addNamed("eval/loss/", step.evaluation->means);
  }
  return write(key(2, Varint) + varint(step.step) + bytesField(5, summary));
}

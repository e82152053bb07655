//===- Safetensors.h - Reading and writing safetensors ----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The format: a little-endian u64 header length, a JSON header
// {name: {dtype, shape, data_offsets}}, then row-major data.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_RUNTIME_SAFETENSORS_H
#define PLAIT_RUNTIME_SAFETENSORS_H

#include "plait/Plan/Files.h"
#include "plait/Support/Status.h"

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace plait::runtime {

/// A tensor inside a mapped file. Valid as long as its WeightFiles.
struct FileTensor {
  enum class Type { F32, F16, BF16 };

  Type type;
  std::vector<int64_t> shape;
  std::span<const uint8_t> bytes;

  /// Converts elements [begin, begin + target.size()) to f32.
  void read(int64_t begin, std::span<float> target) const;
};

/// The weights of a model in one or more files. Immutable; reading is safe
/// from all threads.
class WeightFiles {
public:
  /// `path` is a safetensors file, the index of several, whose name ends with
  /// ".index.json", or a folder (see findModelFolder()) that holds
  /// model.safetensors or model.safetensors.index.json.
  static Result<WeightFiles> open(const std::string &path);
  /// The tensors of several safetensors files, no name twice; `name` is that of
  /// all of them in messages.
  static Result<WeightFiles> open(const std::string &name,
                                  const std::vector<std::string> &files);

  /// Adds the tensors of a safetensors file, of which it has none.
  Status add(const std::string &file);

  /// The n-th file.
  const MappedFile &file(size_t n) const { return files[n]; }

  /// Gives the memory back that holds what has been read. To be called now and
  /// then by who reads large tensors once.
  void release() const;

  /// The tensor `name`, or the one whose name differs only by a leading
  /// "transformer." or "model.". Checks the shape.
  Result<const FileTensor *> find(const std::string &name,
                                  std::span<const int64_t> shape) const;
  /// Whether a tensor has such a name, whatever its shape and type.
  bool has(const std::string &name) const;

  /// The names of the tensors that are not among `used`, sorted; but for those
  /// that are equal to one of them, as a tied matrix is that was written twice.
  std::vector<std::string>
  findOthers(const std::set<const FileTensor *> &used) const;

private:
  std::string path;
  std::vector<MappedFile> files;
  std::map<std::string, FileTensor> tensors;
  std::map<std::string, std::string> otherTypes; // tensors that are not floats
};

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// Returns the tensors of files that `name` stands for: itself, or, where it
/// has a
/// `*`, one for each index along the first dimension of `shape`, which takes
/// the place of that.
std::vector<TensorShape> listTensors(const std::string &name,
                                     std::span<const int64_t> shape);

/// A file of tensors of one type, one behind the other in their order.
struct SafetensorsLayout {
  std::string header;            // what the file begins with
  std::vector<uint64_t> offsets; // of each tensor, in the file
  uint64_t bytes = 0;            // of the file
};
/// `type` is F32 or BF16.
SafetensorsLayout layOut(const std::vector<TensorShape> &tensors,
                         FileTensor::Type type = FileTensor::Type::F32);

/// Writes one file of tensors in f32, or rounded to bf16.
class WeightWriter {
public:
  /// Lays `tensors` out in their order. What is never written is zero.
  static Result<WeightWriter> create(const std::string &path,
                                     const std::vector<TensorShape> &tensors,
                                     FileTensor::Type type);

  /// Writes elements from `begin` of tensor `tensor`. Threads may write
  /// different elements at the same time.
  Status write(size_t tensor, int64_t begin, std::span<const float> elements);

  /// Gives the file its final name.
  Status commit() { return file.commit(); }

private:
  WeightWriter(OutputFile file, FileTensor::Type type)
      : file(std::move(file)), type(type) {}

  OutputFile file;
  FileTensor::Type type;
  std::vector<uint64_t> offsets; // see SafetensorsLayout
};

/// "[2, 3]": how messages show a shape.
std::string formatShape(std::span<const int64_t> shape);

} // namespace plait::runtime

#endif // PLAIT_RUNTIME_SAFETENSORS_H

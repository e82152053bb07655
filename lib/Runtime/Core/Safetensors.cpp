//===- Safetensors.cpp - Reading and writing safetensors ------------------===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Safetensors.h has the format. Files are mapped and tensors are views of them,
// in f32, f16 or bf16, converted as they are read; written are f32 tensors
// only. A file may come from anywhere: each number of its header is checked
// against the file's size before it is used, without sums that could overflow.
//
//===----------------------------------------------------------------------===//

#include "plait/Runtime/Safetensors.h"

#include "plait/Plan/Json.h"
#include "plait/Plan/ModelFolder.h"
#include "plait/Support/BFloat16.h"
#include "plait/Support/Float16.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

using namespace plait;
using namespace plait::runtime;
using Json = nlohmann::json;

namespace {

/// The bytes of the header's length, at the beginning of the file.
constexpr size_t lengthBytes = 8;
/// The end of the name of a file that lists those of a model.
constexpr const char *indexEnding = ".index.json";
/// The format's own limit.
constexpr uint64_t maxHeaderBytes = 100'000'000;

/// The names of the format; others are no failure here, see parseTensor().
std::optional<FileTensor::Type> parseType(const std::string &name) {
  if (name == "F32")
    return FileTensor::Type::F32;
  if (name == "F16")
    return FileTensor::Type::F16;
  if (name == "BF16")
    return FileTensor::Type::BF16;
  return std::nullopt;
}

uint64_t elementBytes(FileTensor::Type type) {
  return type == FileTensor::Type::F32 ? 4 : 2;
}

/// Tensors may begin at any byte of the file, so that a cast of the pointer
/// could be misaligned.
template <typename T> T load(const uint8_t *from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

/// The JSON header and the data behind it.
struct Parts {
  Json header;
  std::span<const uint8_t> data;
};

/// A file is the length of the header in 8 bytes, the header, the data. The
/// messages of failures go on after the name of the file.
Result<Parts> splitFile(std::span<const uint8_t> file) {
  if (file.size() < lengthBytes)
    return fail("is truncated: it has ", file.size(), " bytes");
  uint64_t length = load<uint64_t>(file.data());
  if (length > maxHeaderBytes)
    return fail("is not a safetensors file: its header would have ", length,
                " bytes");
  // Subtracted, as a sum with a length from the file could overflow.
  if (file.size() - lengthBytes < length)
    return fail("is truncated: it has ", file.size(),
                " bytes, its header alone ", length);
  Result<Json> header = parseJson<Json>(file.subspan(lengthBytes, length));
  if (!header.ok())
    return fail("is not a safetensors file: its header ",
                header.status().message());
  if (!header->is_object())
    return Status::failure("is not a safetensors file: its header is not a "
                           "JSON object");
  return Parts{std::move(*header), file.subspan(lengthBytes + length)};
}

using NamedTensor = std::pair<const std::string, FileTensor>;

/// Reads one entry of the header. Tensors of other types than floats exist in
/// real files (attention masks); they are left out: nothing asks for them.
Result<std::optional<FileTensor>>
parseTensor(const std::string &name, const Json &entry,
            std::span<const uint8_t> data) try {
  auto type = parseType(entry.at("dtype").get<std::string>());
  if (!type)
    return std::optional<FileTensor>();
  FileTensor tensor = {
      *type, entry.at("shape").get<std::vector<int64_t>>(), {}};
  const Json &range = entry.at("data_offsets");
  auto offsets = range.get<std::array<uint64_t, 2>>();
  // What is negative or a fraction would be converted.
  if (range.size() != 2 || !range[0].is_number_unsigned() ||
      !range[1].is_number_unsigned() || offsets[0] > offsets[1])
    return fail("is malformed: tensor '", name, "' has data_offsets ",
                range.dump(), ", expected two whole numbers in order");
  if (offsets[1] > data.size())
    return fail("is truncated: tensor '", name, "' ends at byte ", offsets[1],
                " of ", data.size());
  // Offsets count from the end of the header. Nothing is copied: the bytes are
  // those of the mapped file.
  tensor.bytes = data.subspan(offsets[0], offsets[1] - offsets[0]);
  // Sizes come from the file: the product may overflow.
  uint64_t bytes = elementBytes(*type);
  for (int64_t size : tensor.shape)
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      return fail("is malformed: tensor '", name, "' has an impossible shape");
  if (bytes != tensor.bytes.size())
    return fail("is malformed: tensor '", name, "' has ", tensor.bytes.size(),
                " bytes, its shape ", formatShape(tensor.shape), " needs ",
                bytes);
  return std::optional(std::move(tensor));
} catch (const Json::exception &) {
  return fail("is malformed: the header's entry for '", name,
              "' lacks dtype, shape or data_offsets");
}

/// That no two tensors of a file share bytes. The format forbids it, and one of
/// them would be read for the other.
Status checkDisjoint(std::vector<const NamedTensor *> tensors) {
  std::erase_if(tensors,
                [](auto *tensor) { return tensor->second.bytes.empty(); });
  std::sort(tensors.begin(), tensors.end(), [](auto *left, auto *right) {
    return left->second.bytes.data() < right->second.bytes.data();
  });
  auto meets = [](auto *left, auto *right) {
    return right->second.bytes.data() < &left->second.bytes.back() + 1;
  };
  auto found = std::adjacent_find(tensors.begin(), tensors.end(), meets);
  if (found == tensors.end())
    return Status::success();
  return fail("is malformed: tensors '", found[0]->first, "' and '",
              found[1]->first, "' have the same bytes");
}

/// The files that the index at `path` lists, which are beside it.
Result<std::vector<std::string>> readIndex(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path, "weights");
  if (!file.ok())
    return file.status();
  Result<Json> parsed = parseJson<Json>(file->bytes());
  if (!parsed.ok())
    return fail("weights '", path, "' ", parsed.status().message());
  Json &index = *parsed;
  if (!index.is_object() || !index.contains("weight_map") ||
      !index["weight_map"].is_object())
    return fail("weights '", path, "' has no weight_map");
  // The map is from tensors to files: each file is there many times.
  std::set<std::string> files;
  for (const auto &[tensor, name] : index["weight_map"].items()) {
    if (!name.is_string())
      return fail("weights '", path, "' names no file for '", tensor, "'");
    files.insert(std::filesystem::path(path).parent_path() /
                 name.get<std::string>());
  }
  return std::vector<std::string>(files.begin(), files.end());
}

/// The files of a folder: one, or those an index lists.
Result<std::vector<std::string>> listFiles(const std::string &folder) {
  std::error_code error;
  std::string single = folder + "/model.safetensors";
  if (std::filesystem::exists(single, error))
    return std::vector<std::string>{single};
  std::string index = single + indexEnding;
  if (!std::filesystem::exists(index, error))
    return fail("weights '", folder,
                "' has neither model.safetensors nor "
                "model.safetensors.index.json");
  return readIndex(index);
}

} // namespace

/// Prints a shape as Python prints a list.
std::string runtime::formatShape(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// `begin` counts elements. The caller keeps the range inside the tensor.
void FileTensor::read(int64_t begin, std::span<float> target) const {
  const uint8_t *source = bytes.data() + begin * elementBytes(type);
  if (type == Type::F32) {
    std::memcpy(target.data(), source, target.size_bytes());
    return;
  }
  for (size_t i = 0; i < target.size(); ++i)
    target[i] = type == Type::BF16 ? float(load<BFloat16>(source + 2 * i))
                                   : float(load<Float16>(source + 2 * i));
}

/// A path that is no directory is taken for a file, so that the message about a
/// path that does not exist is that of opening it.
Result<WeightFiles> WeightFiles::open(const std::string &path) {
  std::error_code error;
  Result<std::vector<std::string>> files = std::vector<std::string>{path};
  if (std::filesystem::is_directory(path, error))
    files = listFiles(findModelFolder(path));
  else if (path.ends_with(indexEnding))
    files = readIndex(path);
  if (!files.ok())
    return files.status();
  return open(path, *files);
}

/// Shards of one model: a name in two of them is an error, as none would be
/// right.
Result<WeightFiles> WeightFiles::open(const std::string &name,
                                      const std::vector<std::string> &files) {
  WeightFiles weights;
  weights.path = name;
  for (const std::string &file : files)
    PLAIT_RETURN_IF_ERROR(weights.add(file));
  return weights;
}

/// All files: which pages have been read is the system's knowledge.
void WeightFiles::release() const {
  for (const MappedFile &file : files)
    file.release();
}

/// Spans into a mapping stay valid when the mapping is moved to `files`.
Status WeightFiles::add(const std::string &file) {
  Result<MappedFile> mapped = MappedFile::open(file, "weights");
  if (!mapped.ok())
    return mapped.status();
  Result<Parts> parts = splitFile(mapped->bytes());
  if (!parts.ok())
    return fail("weights '", file, "' ", parts.status().message());
  std::vector<const NamedTensor *> added;
  for (const auto &[name, entry] : parts->header.items()) {
    if (name == "__metadata__")
      continue;
    auto tensor = parseTensor(name, entry, parts->data);
    if (!tensor.ok())
      return fail("weights '", file, "' ", tensor.status().message());
    if (!*tensor) {
      otherTypes.emplace(name, entry.at("dtype").get<std::string>());
      continue;
    }
    auto [place, isNew] = tensors.emplace(name, std::move(**tensor));
    if (!isNew)
      return fail("weights '", file, "': tensor '", name, "' exists twice");
    added.push_back(&*place);
  }
  if (Status status = checkDisjoint(std::move(added)); !status.ok())
    return fail("weights '", file, "' ", status.message());
  files.push_back(std::move(*mapped));
  return Status::success();
}

/// Checkpoints of a whole model have a prefix that those of its body alone lack
/// ("transformer." for GPT-2, "model." for Llama): the name is looked up as it
/// is, with each prefix, and without. The name itself goes first, so that an
/// exact match wins.
static std::vector<std::string> listNames(const std::string &name) {
  std::vector<std::string> names = {name};
  for (std::string prefix : {"transformer.", "model."}) {
    names.push_back(prefix + name);
    if (name.starts_with(prefix))
      names.push_back(name.substr(prefix.size()));
  }
  return names;
}

bool WeightFiles::has(const std::string &name) const {
  std::vector<std::string> names = listNames(name);
  return std::any_of(names.begin(), names.end(), [this](const auto &candidate) {
    return tensors.contains(candidate) || otherTypes.contains(candidate);
  });
}

/// Whether the dimensions `whole` are products of neighbours among `parts`: the
/// same elements in the same order.
static bool isJoined(std::span<const int64_t> parts,
                     std::span<const int64_t> whole) {
  size_t next = 0;
  for (int64_t size : whole) {
    int64_t product = 1;
    while (product < size && next < parts.size())
      product *= parts[next++];
    if (product != size)
      return false;
  }
  return std::ranges::all_of(parts.subspan(next),
                             [](int64_t size) { return size == 1; });
}

/// The first name that exists must have the shape, or one whose dimensions the
/// model sees as several.
Result<const FileTensor *>
WeightFiles::find(const std::string &name,
                  std::span<const int64_t> shape) const {
  std::vector<std::string> names = listNames(name);
  for (const std::string &candidate : names) {
    auto found = tensors.find(candidate);
    if (found == tensors.end())
      continue;
    const FileTensor &tensor = found->second;
    // Shapes must agree to the dimension: a transposed weight would load and be
    // wrong.
    if (!isJoined(shape, tensor.shape))
      return fail("weights '", path, "': tensor '", candidate, "' has shape ",
                  formatShape(tensor.shape), ", expected ", formatShape(shape));
    return &tensor;
  }
  for (const std::string &candidate : names)
    if (auto other = otherTypes.find(candidate); other != otherTypes.end())
      return fail("weights '", path, "': tensor '", candidate, "' has type ",
                  other->second, ", expected F32, F16 or BF16");
  return fail("weights '", path, "' has no tensor '", name, "'");
}

namespace {
/// An order of tensors by content, in which the bytes of those of one shape are
/// compared, and no others.
struct ByContent {
  bool operator()(const FileTensor *left, const FileTensor *right) const {
    auto head = [](const FileTensor *tensor) {
      return std::tie(tensor->type, tensor->shape);
    };
    if (head(left) != head(right))
      return head(left) < head(right);
    return std::memcmp(left->bytes.data(), right->bytes.data(),
                       left->bytes.size()) < 0;
  }
};
} // namespace

/// A tied weight may be saved under two names: its copy is no other.
std::vector<std::string>
WeightFiles::findOthers(const std::set<const FileTensor *> &used) const {
  std::vector<std::string> names;
  std::optional<std::set<const FileTensor *, ByContent>> known;
  for (const auto &[name, tensor] : tensors) {
    if (used.contains(&tensor))
      continue;
    // Only where there are others is anything read.
    if (!known)
      known.emplace(used.begin(), used.end());
    if (!known->contains(&tensor))
      names.push_back(name);
  }
  return names;
}

std::vector<TensorShape> runtime::listTensors(const std::string &name,
                                              std::span<const int64_t> shape) {
  size_t star = name.find('*');
  if (star == std::string::npos)
    return {{name, {shape.begin(), shape.end()}}};
  std::vector<TensorShape> tensors;
  for (int64_t index = 0; index < shape[0]; ++index) {
    std::string own = name;
    own.replace(star, 1, std::to_string(index));
    tensors.push_back({std::move(own), {shape.begin() + 1, shape.end()}});
  }
  return tensors;
}

// Without gaps and in the order of `tensors`. Offsets in the header count from
// its end, those of the layout from the beginning of the file.
SafetensorsLayout runtime::layOut(const std::vector<TensorShape> &tensors,
                                  FileTensor::Type type) {
  bool isFull = type == FileTensor::Type::F32;
  SafetensorsLayout layout;
  nlohmann::ordered_json header;
  // What other readers look for.
  header["__metadata__"] = {{"format", "pt"}};
  auto &members = header.get_ref<nlohmann::ordered_json::object_t &>();
  uint64_t end = 0;
  for (const TensorShape &tensor : tensors) {
    layout.offsets.push_back(end);
    uint64_t bytes = isFull ? 4 : 2;
    for (int64_t size : tensor.shape)
      bytes *= size;
    // Names are unique: the library would look at all before for each.
    members.emplace_back(
        tensor.name,
        nlohmann::ordered_json{{"dtype", isFull ? "F32" : "BF16"},
                               {"shape", tensor.shape},
                               {"data_offsets", {end, end + bytes}}});
    end += bytes;
  }
  std::string &text = layout.header;
  text = header.dump();
  // The data begins at a multiple of 8, so that readers can map it.
  text.resize((text.size() + 7) / 8 * 8, ' ');
  uint64_t length = text.size();
  text.insert(0, reinterpret_cast<const char *>(&length), lengthBytes);
  for (uint64_t &offset : layout.offsets)
    offset += text.size();
  layout.bytes = text.size() + end;
  return layout;
}

/// The size is set at once: what no rank writes reads as zero.
Result<WeightWriter>
WeightWriter::create(const std::string &path,
                     const std::vector<TensorShape> &tensors,
                     FileTensor::Type type) {
  SafetensorsLayout layout = layOut(tensors, type);
  Result<OutputFile> file =
      OutputFile::create(path, OutputFile::Content::Binary);
  if (!file.ok())
    return file.status();
  PLAIT_RETURN_IF_ERROR(file->resize(layout.bytes));
  PLAIT_RETURN_IF_ERROR(
      file->writeAt(0, {reinterpret_cast<const uint8_t *>(layout.header.data()),
                        layout.header.size()}));
  WeightWriter writer(std::move(*file), type);
  writer.offsets = std::move(layout.offsets);
  return writer;
}

/// Disjoint ranges, by writeAt(), from any thread.
Status WeightWriter::write(size_t tensor, int64_t begin,
                           std::span<const float> elements) {
  if (type == FileTensor::Type::BF16) {
    std::vector<BFloat16> rounded(elements.begin(), elements.end());
    return file.writeAt(offsets[tensor] + begin * sizeof(BFloat16),
                        {reinterpret_cast<const uint8_t *>(rounded.data()),
                         rounded.size() * sizeof(BFloat16)});
  }
  return file.writeAt(offsets[tensor] + begin * sizeof(float),
                      {reinterpret_cast<const uint8_t *>(elements.data()),
                       elements.size_bytes()});
}

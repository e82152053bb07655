//===- MemoryPlaces.h - Where the bytes of a rank lie -----------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one table of the places in which a rank has memory. Kernels and libraries
// use the arena alone. What is not needed all the time can lie in another
// place, and is copied from there and back (CPU offload). All places share one
// space of offsets, so that all that is said of bytes, which live together,
// which steps use the same, holds for any without a word about which it is.
// Each begins at a boundary of its own, so that one may grow without moving
// what lies in another.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_SUPPORT_MEMORYPLACES_H
#define PLAIT_SUPPORT_MEMORYPLACES_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

/// All places, the arena first. Columns are name, number, name in texts, name
/// in sentences, and whether it is the memory that processors compute in:
/// theirs is one with the arena. In plans, `NAME_bytes` of a program (Plan.fbs)
/// is what a rank has of a place. In hardware files, `NAMEBandwidth` of a
/// device is the rate of copies, and NAME what the devices of a node share.
/// Numbers are never used again: they are in plans.
#define PLAIT_FOR_EACH_MEMORY_PLACE(X)                                         \
  X(Arena, 0, arena, "the arena", true)                                        \
  X(Host, 1, host, "the host's memory", true)

namespace plait {

enum class MemoryPlace : uint8_t {
#define PLAIT_PLACE(KIND, NUMBER, NAME, WORDS, OF_PROCESSORS) KIND = NUMBER,
  PLAIT_FOR_EACH_MEMORY_PLACE(PLAIT_PLACE)
#undef PLAIT_PLACE
};

/// Facts of a place.
struct MemoryPlaceFacts {
  MemoryPlace place;
  std::string_view name;  // "host"
  std::string_view words; // "the host's memory"
  bool isOfProcessors;

  /// Whether its bytes are others than those of the arena.
  constexpr bool isApart(bool isProcessor) const {
    return place != MemoryPlace::Arena && !(isProcessor && isOfProcessors);
  }
};

/// All places, by their numbers.
inline constexpr MemoryPlaceFacts memoryPlaces[] = {
#define PLAIT_PLACE(KIND, NUMBER, NAME, WORDS, OF_PROCESSORS)                  \
  {MemoryPlace::KIND, #NAME, WORDS, OF_PROCESSORS},
    PLAIT_FOR_EACH_MEMORY_PLACE(PLAIT_PLACE)
#undef PLAIT_PLACE
};
inline constexpr size_t memoryPlaceCount = std::size(memoryPlaces);

/// Those that bytes can be offloaded to.
inline constexpr std::span<const MemoryPlaceFacts> otherPlaces =
    std::span(memoryPlaces).subspan(1);

constexpr const MemoryPlaceFacts &getFacts(MemoryPlace place) {
  return memoryPlaces[size_t(place)];
}

/// The place of what is used in `known`, if anywhere so far, and now in
/// `place`: what is not moved everywhere lies in the arena.
constexpr MemoryPlace joinPlaces(std::optional<MemoryPlace> known,
                                 MemoryPlace place) {
  return known.value_or(place) == place ? place : MemoryPlace::Arena;
}

/// One value for each place.
template <typename T> class PerPlace {
public:
  T &operator[](MemoryPlace place) { return values[size_t(place)]; }
  const T &operator[](MemoryPlace place) const { return values[size_t(place)]; }
  auto begin() const { return values.begin(); }
  auto end() const { return values.end(); }
  auto operator<=>(const PerPlace &) const = default;

private:
  std::array<T, memoryPlaceCount> values = {};
};

//===----------------------------------------------------------------------===//
// Offsets
//===----------------------------------------------------------------------===//

/// No place has as many bytes.
inline constexpr uint64_t placeLimit = uint64_t(1) << 48;

/// The offset where a place begins.
constexpr uint64_t getBegin(MemoryPlace place) {
  return uint64_t(place) * placeLimit;
}
/// The place of an offset. One behind all of them, as a plan that has not been
/// checked may have, is of no place: its number is memoryPlaceCount or above.
constexpr MemoryPlace getMemoryPlace(uint64_t offset) {
  uint64_t number = offset / placeLimit;
  return MemoryPlace(number < memoryPlaceCount ? number : memoryPlaceCount);
}
constexpr bool isInArena(uint64_t offset) { return offset < placeLimit; }

/// The bytes that a program of a plan has of a place.
template <typename Program>
constexpr uint64_t getPlaceBytes(const Program &program, MemoryPlace place) {
  switch (place) {
#define PLAIT_PLACE(KIND, NUMBER, NAME, WORDS, OF_PROCESSORS)                  \
  case MemoryPlace::KIND:                                                      \
    return program.NAME##_bytes();
    PLAIT_FOR_EACH_MEMORY_PLACE(PLAIT_PLACE)
#undef PLAIT_PLACE
  }
  return 0;
}

/// Says in a program that is being made how many bytes it has of a place.
template <typename Program>
constexpr void setPlaceBytes(Program &program, MemoryPlace place,
                             uint64_t bytes) {
  switch (place) {
#define PLAIT_PLACE(KIND, NUMBER, NAME, WORDS, OF_PROCESSORS)                  \
  case MemoryPlace::KIND:                                                      \
    program.NAME##_bytes = bytes;                                              \
    break;
    PLAIT_FOR_EACH_MEMORY_PLACE(PLAIT_PLACE)
#undef PLAIT_PLACE
  }
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

// The IR and the plan file have an enumeration of kinds of copies each: 0 is
// within the arena, and two to a place and from it follow for each of them.

/// The place at the other end of a copy of that kind.
template <typename Kind> constexpr MemoryPlace getOtherPlace(Kind kind) {
  return MemoryPlace((size_t(kind) + 1) / 2);
}
/// Whether it goes from the arena to the other place.
template <typename Kind> constexpr bool leavesArena(Kind kind) {
  return size_t(kind) % 2 == 1;
}
template <typename Kind> constexpr Kind getCopyTo(MemoryPlace place) {
  return Kind(2 * size_t(place) - 1);
}
template <typename Kind> constexpr Kind getCopyFrom(MemoryPlace place) {
  return Kind(2 * size_t(place));
}

} // namespace plait

#endif // PLAIT_SUPPORT_MEMORYPLACES_H

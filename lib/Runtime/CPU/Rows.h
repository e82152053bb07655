//===- Rows.h - Rows of experts among members -------------------*- C++ -*-===//
//
// Part of the plait project, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which rows of a gather or scatter go from one member to another, and where
// they lie at both ends. A gather brings rows of the sender's block to whoever
// has experts of theirs; a scatter brings rows of the receiver's block from
// whoever has. Both ends count by the same ids, so that no counts are sent.
//
//===----------------------------------------------------------------------===//

#ifndef PLAIT_LIB_RUNTIME_CPU_ROWS_H
#define PLAIT_LIB_RUNTIME_CPU_ROWS_H

#include "plait/Plan/Check.h"
#include "plait/Runtime/Communicator.h"

#include <cstring>

namespace plait::runtime {

class RowMoves {
public:
  RowMoves(const CollectiveShape &shape, const RowChoice &choice)
      : choice(choice), scatters(choice.scatters),
        count(shape.chunk / choice.width),
        bytes(choice.width * plan::elementBytes(shape.type)) {}

  int64_t rowsOfBlock() const { return count; }
  int64_t rowBytes() const { return bytes; }

  /// Whether row `row` of the block that is concerned goes from `source` to
  /// `target`.
  bool goes(int64_t source, int64_t target, int64_t row) const {
    int64_t block = scatters ? target : source;
    return choice.has(block * count + row, scatters ? source : target);
  }
  /// The first of the rows that go, from `row` on; as many as there are: none.
  int64_t next(int64_t source, int64_t target, int64_t row) const {
    while (row < count && !goes(source, target, row))
      ++row;
    return row;
  }
  const std::byte *in(const std::byte *input, int64_t target,
                      int64_t row) const {
    return input + (scatters ? target * count + row : row) * bytes;
  }
  std::byte *out(std::byte *output, int64_t source, int64_t row) const {
    return output + (scatters ? row : source * count + row) * bytes;
  }

  /// Fills the rows of `output`, of member `target`, that nobody sends.
  void clear(std::byte *output, int64_t members, int64_t target) const {
    for (int64_t source = 0; source < (scatters ? 1 : members); ++source)
      for (int64_t row = 0; row < count; ++row)
        if (!arrives(members, source, target, row))
          std::memset(out(output, source, row), 0, bytes);
  }
  /// Copies what goes from `source`, whose `input` is, to `target`.
  void copy(const std::byte *input, std::byte *output, int64_t source,
            int64_t target) const {
    for (int64_t row = next(source, target, 0); row < count;
         row = next(source, target, row + 1))
      std::memcpy(out(output, source, row), in(input, target, row), bytes);
  }

private:
  /// Whether any member sends the row, or `source` in a gather.
  bool arrives(int64_t members, int64_t source, int64_t target,
               int64_t row) const {
    if (!scatters)
      return goes(source, target, row);
    for (int64_t member = 0; member < members; ++member)
      if (goes(member, target, row))
        return true;
    return false;
  }

  RowChoice choice;
  bool scatters;
  int64_t count, bytes;
};

} // namespace plait::runtime

#endif // PLAIT_LIB_RUNTIME_CPU_ROWS_H

// Which files of a database live about as long, by their names, where nobody says it.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "log/key_op.h"

namespace furrow {

enum class FileKind : std::uint8_t {
  wal,
  table,  // and blob files: for them it depends on where they stand among the others
  other,  // MANIFEST, OPTIONS, LOG and the like: little is written to them, and they stay
};

inline FileKind file_kind(std::string_view name) {
  if (name.ends_with(".log")) return FileKind::wal;
  const bool table = name.ends_with(".sst") || name.ends_with(".ldb") || name.ends_with(".blob");
  return table ? FileKind::table : FileKind::other;
}

// Of tables: of most of them, as most of a database is in its last levels.
inline Lifetime lifetime_of(FileKind kind) {
  return kind == FileKind::wal ? Lifetime::short_term : Lifetime::long_term;
}

}  // namespace furrow

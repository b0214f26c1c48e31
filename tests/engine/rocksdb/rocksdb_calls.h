// FileCalls by RocksDB's FileSystem, as RocksDB makes them: a FilesModel of what engine/rocksdb
// does with a volume. Not thread-safe.
#pragma once

#include <memory>

#include "tests/engine/files/file_calls.h"

namespace furrow::testing {

std::unique_ptr<FileCalls> rocksdb_calls(std::shared_ptr<FileVolume> volume);

}  // namespace furrow::testing

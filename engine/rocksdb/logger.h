// RocksDB's LOG on an OpenFile.
#pragma once

#include <rocksdb/env.h>

#include <memory>

#include "engine/files/file_volume.h"

namespace furrow {

// A line that cannot be written, on a full device say, is dropped and counted; the next one that
// can be says how many were. The database goes on.
std::shared_ptr<rocksdb::Logger> make_logger(std::unique_ptr<OpenFile> file);

}  // namespace furrow

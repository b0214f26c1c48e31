// RocksDB's LOG on an OpenFile.
#pragma once

#include <rocksdb/env.h>

#include <memory>
#include <string>

#include "engine/files/file_volume.h"

namespace furrow {

// A line that cannot be written, on a full device say, is dropped and counted; the next one that
// can be says how many were. The database goes on. `file`: null where there was no room to make the
// one at `path`: lines wait until there is, and go behind what has that name by then.
// Every ten minutes, and at the end, a line says what the volume has written.
std::shared_ptr<rocksdb::Logger> make_logger(std::unique_ptr<OpenFile> file,
                                             std::shared_ptr<FileVolume> volume,
                                             const std::string& path);

}  // namespace furrow

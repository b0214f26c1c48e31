// A Status as RocksDB has them.
#pragma once

#include <rocksdb/io_status.h>

#include <string_view>

#include "zone/status.h"

namespace furrow {

// `what`: the file, for the text.
inline rocksdb::IOStatus io_status(const Status& status, std::string_view what) {
  using rocksdb::IOStatus;
  if (status.ok()) return IOStatus::OK();
  const rocksdb::Slice name(what.data(), what.size());
  const std::string text = status.describe();
  switch (status.code()) {
    case Code::not_found:
      return IOStatus::PathNotFound(name, text);
    case Code::no_space: {
      IOStatus full = IOStatus::NoSpace(name, text);
      full.SetRetryable(true);
      return full;
    }
    case Code::unsupported:
      return IOStatus::NotSupported(name, text);
    case Code::corrupt:
      return IOStatus::Corruption(name, text);
    case Code::invalid_argument:
    case Code::too_large:
    default:
      return IOStatus::IOError(name, text);
  }
}

}  // namespace furrow

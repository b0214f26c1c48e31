#include "tools/device_watch.h"

#include <fmt/format.h>

#include <utility>

namespace furrow::tools {

std::vector<std::string> DeviceWatch::look(const PoolInfo& info) {
  std::vector<std::string> news;
  if (std::exchange(full_, info.device_full) != info.device_full) {
    news.push_back(info.device_full
                       ? "the device takes no more data (is the file system under it full?): what "
                         "is to be stored is refused until there is room"
                       : "the device takes data again");
  }
  const std::uint64_t told = std::exchange(failed_writes_, info.failed_writes);
  if (told != info.failed_writes) {
    news.push_back(fmt::format(
        "writes failed: {}, the last one by {}; each has ended a zone, and what was to be stored "
        "goes to another, or is refused",
        info.failed_writes - told, info.write_failure.describe()));
  }
  if (std::exchange(flush_failed_, info.flush_failed) != info.flush_failed) {
    news.push_back(info.flush_failed
                       ? "a flush failed: what was not flushed before may be lost at a power cut, "
                         "and flushes fail until the device is sound and furrowd is started again"
                       : "the device flushes again");
  }
  if (info.device_gone && !std::exchange(gone_, true)) {
    news.push_back(
        "the drive is gone: it was removed, or has failed; every operation fails until it is back "
        "and furrowd is started again");
  }
  if (info.misplaced_writes != 0 && !std::exchange(misplaced_writes_, true)) {
    news.push_back(
        "the drive does not keep the order of the writes in flight in a zone: from now on it is "
        "given one at a time, which is slower");
  }
  return news;
}

}  // namespace furrow::tools

#include "tools/page_copy.h"

#include <algorithm>
#include <span>
#include <utility>

#include "log/format.h"

namespace furrow::tools {

namespace {

constexpr std::size_t kKeysAtOnce = 256;
constexpr std::uint64_t kBytesAtOnce = 2 * std::uint64_t{kValueBytesMax};
constexpr std::uint32_t kPlaceBytes = 4096;  // what any device reads and writes by itself

std::uint64_t place_bytes(std::uint32_t length) {
  return (std::uint64_t{length} + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
}

PageOp keyed(PageOp::Kind kind, const Key& key) {
  PageOp op;
  op.kind = kind;
  op.key = key;
  return op;
}

}  // namespace

PageCopy::PageCopy(Volume from, Volume to, Options options)
    : from_(from), to_(to), options_(std::move(options)), memory_(kBytesAtOnce) {}

Status PageCopy::run() {
  std::vector<Key> keys;
  Status status = list({}, keys);
  while (status.ok() && !keys.empty()) {
    status = look_up(keys);
    if (status.ok()) status = copy_all();
    if (status.ok()) status = list(Key(keys.back()), keys);
  }
  if (!status.ok()) return status;
  PageOp flush;
  flush.kind = PageOp::Kind::flush;
  to_.pool.run(to_.store, {&flush, 1});
  return flush.status;
}

Status PageCopy::list(const Key& after, std::vector<Key>& keys) {
  failed_at_ = {};
  keys.resize(kKeysAtOnce);
  PageOp op = keyed(PageOp::Kind::list, after);
  op.keys = keys.data();
  op.keys_max = kKeysAtOnce;
  from_.pool.run(from_.store, {&op, 1});
  keys.resize(op.status.ok() ? op.keys_count : 0);
  return op.status;
}

// What has gone since it was listed, as its time was up, is not there.
Status PageCopy::look_up(const std::vector<Key>& keys) {
  found_.clear();
  for (const Key& key : keys) {
    found_.push_back(keyed(PageOp::Kind::exist, key));
    found_.back().whole_record = true;
  }
  from_.pool.run(from_.store, found_);
  for (const PageOp& op : found_) {
    if (const Status status = take_lost(op); !status.ok()) return status;
  }
  std::erase_if(found_, [](const PageOp& op) { return !op.status.ok(); });
  return {};
}

// As many at a time as there is memory for.
Status PageCopy::copy_all() {
  for (std::span<const PageOp> left = found_; !left.empty();) {
    std::size_t count = 0;
    std::uint64_t bytes = 0;
    while (count < left.size() && bytes + place_bytes(left[count].length) <= kBytesAtOnce) {
      bytes += place_bytes(left[count++].length);
    }
    Status status = read(left.first(count));
    if (status.ok()) status = write(left.first(count));
    if (!status.ok()) return status;
    left = left.subspan(count);
    if (options_.on_progress) options_.on_progress(pages_);
  }
  return {};
}

Status PageCopy::read(std::span<const PageOp> pages) {
  gets_.clear();
  std::byte* place = memory_.data();
  for (const PageOp& page : pages) {
    PageOp get = keyed(PageOp::Kind::get, page.key);
    get.data = place;
    get.capacity = static_cast<std::uint32_t>(place_bytes(page.length));
    place += get.capacity;
    gets_.push_back(std::move(get));
  }
  from_.pool.run(from_.store, gets_);
  for (const PageOp& get : gets_) {
    if (const Status status = take_lost(get); !status.ok()) return status;
  }
  return {};
}

// What read() got.
Status PageCopy::write(std::span<const PageOp> pages) {
  puts_.clear();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const PageOp& get = gets_[i];
    if (!get.status.ok()) continue;
    PageOp put = keyed(PageOp::Kind::put, get.key);
    put.data = get.data;
    put.length = get.length;
    put.capacity = get.capacity;
    put.group = pages[i].group;
    put.pinned = pages[i].pinned;
    put.ttl_s = pages[i].ttl_s;
    puts_.push_back(std::move(put));
  }
  to_.pool.run(to_.store, puts_);
  for (const PageOp& put : puts_) {
    failed_at_ = put.key;
    if (!put.status.ok()) return put.status;
    ++pages_;
    bytes_ += put.length;
  }
  failed_at_ = {};
  return {};
}

Status PageCopy::take_lost(const PageOp& op) {
  if (op.status.ok() || op.status.code() == Code::not_found) return {};
  failed_at_ = op.key;
  if (!options_.on_lost) return op.status;
  ++lost_;
  options_.on_lost(op.key, op.status);
  return {};
}

}  // namespace furrow::tools

#include "log/index.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <thread>

#include "log/index_bucket.h"
#include "log/index_chunks.h"
#include "zone/check.h"

namespace furrow {

namespace {

// Split and merge points, in entries a bucket on average over the whole index. Where entries are
// smaller, buckets are longer: what each costs by itself counts for more.
constexpr std::uint64_t kSplitAbove = 60, kMergeBelow = 52;
constexpr std::uint64_t kNarrowSplitAbove = 120, kNarrowMergeBelow = 104;
// A bucket longer than this makes every insert into it split one: keyed hashes do not do that, only
// somebody who stores many keys and keeps those that list next to each other.
constexpr unsigned kLongBucket = 1024;
constexpr unsigned kInitialBitsMin = 6;
static_assert(kInitialBitsMin >= Index::kLoadRangeBits);  // no bucket is of two ranges
constexpr std::uint64_t kEntriesPerInitialBucket = 1024;
constexpr unsigned kTagBits = 16;
constexpr unsigned kSplitLevelsMax = 12;  // so that at least four bits of a tag tell keys apart
constexpr std::uint64_t kBytesPerEntryMax = 16;

unsigned initial_bits_for(std::uint64_t entries_max) {
  const std::uint64_t buckets = entries_max / kEntriesPerInitialBucket + 1;
  return std::clamp(static_cast<unsigned>(std::bit_width(buckets - 1)), kInitialBitsMin, 31u);
}

void pause(unsigned& spins) {
  // The owner may have been put off its core in the middle of a change.
  if (++spins % 64 == 0) std::this_thread::yield();
}

}  // namespace

struct Index::Impl {
  Impl(std::uint64_t entries_max, const Shape& shape);

  BucketHeader header(std::uint32_t bucket) const {
    return BucketHeader(load_word(directory_.words()[bucket]));
  }
  void publish(std::uint32_t bucket, BucketHeader header) {
    store_word(directory_.words()[bucket], header.word());
  }
  Chunk chunk(BucketHeader header) const {
    return chunks_.chunk(header.chunk(), Chunk::class_of(header.count()));
  }
  Place place(std::uint64_t order) const {
    return place_of(order, buckets_.load(std::memory_order_acquire));
  }
  std::uint16_t tag_of(std::uint64_t order) const {
    return static_cast<std::uint16_t>(order << initial_bits_ >> (64 - kTagBits));
  }

  // Runs read(header, bucket, bits) on the bucket of `order` until nothing changed meanwhile.
  template <class Read>
  void read_bucket(std::uint64_t order, Read&& read) const;

  // The number of the entry of `order` at `lba` in its bucket; -1: none. Owner.
  int locate(BucketHeader header, std::uint64_t order, std::uint64_t lba) const;
  BucketHeader new_chunk(std::uint32_t bucket, BucketHeader before, unsigned count);
  void free_chunk(unsigned k, ChunkStore::Ref ref);
  void append(std::uint32_t bucket, const ChunkEntry& entry);
  void remove(std::uint32_t bucket, unsigned at);
  bool erase_at(std::uint32_t bucket, unsigned at);
  void split();
  void merge();
  void set_buckets(std::uint64_t buckets);
  void trim_directory();
  bool may_split() const;
  void set_size(std::uint64_t entries) { size_.store(entries, std::memory_order_relaxed); }

  const unsigned initial_bits_;
  const std::uint64_t split_above_, merge_below_;
  ReservedMemory directory_;  // a word for each bucket
  ChunkStore chunks_;
  std::atomic<std::uint64_t> buckets_{0};
  std::atomic<std::uint64_t> size_{0};
  std::atomic<std::uint64_t> directory_bytes_{0};
  std::mutex load_mutex_;           // of chunks_, while there are Loaders
  std::uint64_t version_seed_ = 0;  // of a bucket that comes into being
};

Index::Impl::Impl(std::uint64_t entries_max, const Shape& shape)
    : initial_bits_(std::max(initial_bits_for(entries_max),
                             shape.order_bits - std::min(shape.order_bits, kTagBits))),
      split_above_(shape.same_length == 0 ? kSplitAbove : kNarrowSplitAbove),
      merge_below_(shape.same_length == 0 ? kMergeBelow : kNarrowMergeBelow),
      directory_((std::uint64_t{8} << initial_bits_) << kSplitLevelsMax,
                 std::uint64_t{16} << initial_bits_),
      chunks_(std::min(std::max(entries_max, shape.entries_limit), std::uint64_t{1} << kLbaBits) *
                  kBytesPerEntryMax * 2,
              shape.same_length == 0 ? 0 : pack({0, shape.same_length, 0, false, false})) {
  set_buckets(std::uint64_t{1} << initial_bits_);
}

void Index::Impl::set_buckets(std::uint64_t buckets) {
  buckets_.store(buckets, std::memory_order_release);
  const std::uint64_t used = ReservedMemory::round_to_pages(buckets * 8);
  if (used > directory_bytes_.load(std::memory_order_relaxed)) {
    directory_bytes_.store(used, std::memory_order_relaxed);
  }
}

// Gives pages back that merging left unused, but one.
void Index::Impl::trim_directory() {
  const std::uint64_t used =
      ReservedMemory::round_to_pages(buckets_.load(std::memory_order_relaxed) * 8);
  const std::uint64_t touched = directory_bytes_.load(std::memory_order_relaxed);
  if (used + ReservedMemory::page_bytes() >= touched) return;
  directory_.release(used, touched);
  directory_bytes_.store(used, std::memory_order_relaxed);
}

template <class Read>
void Index::Impl::read_bucket(std::uint64_t order, Read&& read) const {
  for (unsigned spins = 0;; pause(spins)) {
    const Place at = place(order);
    const BucketHeader before = header(at.bucket);
    if (before.changing()) continue;
    __builtin_prefetch(chunks_.address(before.chunk()));
    read(before, at);
    // Words were loaded with acquire: had one been overwritten, this would show the change.
    if (header(at.bucket).word() != before.word()) continue;
    if (place(order).bits == at.bits) return;
  }
}

int Index::Impl::locate(BucketHeader header, std::uint64_t order, std::uint64_t lba) const {
  int at = -1;
  const Chunk entries = chunk(header);
  entries.scan(header.count(), tag_of(order), [&](unsigned i) {
    if (at < 0 && (entries.position(i) & kLbaMask) == lba) at = static_cast<int>(i);
  });
  return at;
}

// The header for a fresh chunk that is to hold `count` entries of `bucket`; not published.
BucketHeader Index::Impl::new_chunk(std::uint32_t bucket, BucketHeader before, unsigned count) {
  if (count == 0) return before.next(0, 0);
  const unsigned k = Chunk::class_of(count);
  const BucketHeader after = before.next(chunks_.allocate(k), count);
  chunk(after).set_bucket(bucket);
  return after;
}

void Index::Impl::free_chunk(unsigned k, ChunkStore::Ref ref) {
  if (k == 0) return;
  if (const auto moved = chunks_.free(k, ref)) {
    const BucketHeader old = header(moved->bucket);
    publish(moved->bucket, old.next(moved->to, old.count()));
  }
  chunks_.trim(k);
}

void Index::Impl::append(std::uint32_t bucket, const ChunkEntry& entry) {
  const BucketHeader before = header(bucket);
  const unsigned count = before.count();
  FURROW_CHECK(count < kBucketEntriesMax);
  if (count % Chunk::kEntriesPerClass != 0) {
    chunk(before).set(count, entry);  // readers do not look there before the count says so
    publish(bucket, before.next(before.chunk(), count + 1));
    return;
  }
  const BucketHeader after = new_chunk(bucket, before, count + 1);
  chunk(after).copy_from(chunk(before), count);
  chunk(after).set(count, entry);
  publish(bucket, after);
  free_chunk(Chunk::class_of(count), before.chunk());
}

void Index::Impl::remove(std::uint32_t bucket, unsigned at) {
  const BucketHeader before = header(bucket);
  const unsigned left = before.count() - 1;
  const ChunkEntry last = chunk(before).entry(left);
  if (left % Chunk::kEntriesPerClass != 0) {
    publish(bucket, before.begin_change());
    chunk(before).set(at, last);
    publish(bucket, before.next(before.chunk(), left));
    return;
  }
  const BucketHeader after = new_chunk(bucket, before, left);
  if (left != 0) {
    chunk(after).copy_from(chunk(before), left);
    if (at != left) chunk(after).set(at, last);
  }
  publish(bucket, after);
  free_chunk(Chunk::class_of(left + 1), before.chunk());
}

bool Index::Impl::may_split() const {
  const std::uint64_t buckets = buckets_.load(std::memory_order_relaxed);
  return buckets <
         std::min(std::uint64_t{1} << (initial_bits_ + kSplitLevelsMax), directory_.bytes() / 8);
}

// Splits the next bucket in turn. Readers see the new bucket, then the count that leads to it, then
// the old bucket without what moved; one that read the old bucket between finds the count changed.
void Index::Impl::split() {
  const std::uint64_t buckets = buckets_.load(std::memory_order_relaxed);
  const auto bits = static_cast<unsigned>(std::bit_width(buckets)) - 1;
  const auto high_bucket = static_cast<std::uint32_t>(buckets);
  const auto low_bucket = static_cast<std::uint32_t>(buckets - (std::uint64_t{1} << bits));
  const unsigned shift = kTagBits - 1 - (bits - initial_bits_);

  const BucketHeader before = header(low_bucket);
  const Chunk from = chunk(before);
  unsigned high_count = 0;
  for (unsigned i = 0; i < before.count(); ++i) high_count += from.tag(i) >> shift & 1;

  version_seed_ += 2;
  const BucketHeader high = new_chunk(high_bucket, BucketHeader(0, 0, version_seed_), high_count);
  const BucketHeader low = new_chunk(low_bucket, before, before.count() - high_count);
  Chunk to[2] = {chunk(low), chunk(high)};
  unsigned filled[2] = {0, 0};
  for (unsigned i = 0; i < before.count(); ++i) {
    const ChunkEntry entry = from.entry(i);
    const unsigned half = entry.tag >> shift & 1;
    to[half].set(filled[half]++, entry);
  }
  publish(high_bucket, high);
  set_buckets(buckets + 1);
  publish(low_bucket, low);
  free_chunk(Chunk::class_of(before.count()), before.chunk());
}

// Returns whether buckets were merged.
bool Index::Impl::erase_at(std::uint32_t bucket, unsigned at) {
  remove(bucket, at);
  const std::uint64_t entries = size_.load(std::memory_order_relaxed) - 1;
  set_size(entries);
  const std::uint64_t buckets = buckets_.load(std::memory_order_relaxed);
  if (buckets <= std::uint64_t{1} << initial_bits_ || entries >= merge_below_ * buckets)
    return false;
  merge();
  return true;
}

// The reverse: readers see all in the low bucket, then the smaller count, then the high bucket
// empty.
void Index::Impl::merge() {
  const std::uint64_t buckets = buckets_.load(std::memory_order_relaxed) - 1;
  const auto high_bucket = static_cast<std::uint32_t>(buckets);
  const auto low_bucket = static_cast<std::uint32_t>(buckets - std::bit_floor(buckets));
  const BucketHeader low = header(low_bucket), high = header(high_bucket);
  if (low.count() + high.count() > kBucketEntriesMax) return;
  const BucketHeader both = new_chunk(low_bucket, low, low.count() + high.count());
  if (low.count() != 0) chunk(both).copy_from(chunk(low), low.count());
  for (unsigned i = 0; i < high.count(); ++i) {
    chunk(both).set(low.count() + i, chunk(high).entry(i));
  }
  publish(low_bucket, both);
  set_buckets(buckets);
  free_chunk(Chunk::class_of(low.count()), low.chunk());
  const BucketHeader emptied = header(high_bucket);  // its chunk may have moved just now
  publish(high_bucket, emptied.next(0, 0));
  free_chunk(Chunk::class_of(emptied.count()), emptied.chunk());
  trim_directory();
}

Index::Index(std::uint64_t entries_max, const Shape& shape)
    : impl_(std::make_unique<Impl>(entries_max, shape)) {}
Index::~Index() = default;

unsigned Index::find(std::uint64_t order, unsigned skip, std::span<IndexEntry> out) const {
  const Impl& impl = *impl_;
  const std::uint16_t tag = impl.tag_of(order);
  unsigned found = 0;
  impl.read_bucket(order, [&](BucketHeader header, Place) {
    found = 0;
    const Chunk entries = impl.chunk(header);
    entries.scan(header.count(), tag, [&](unsigned i) {
      if (found >= skip && found - skip < out.size()) {
        out[found - skip] = unpack(entries.position(i), entries.checksum(i));
      }
      ++found;
    });
  });
  return found > skip ? found - skip : 0;
}

void Index::insert(std::uint64_t order, const IndexEntry& entry) {
  Impl& impl = *impl_;
  const std::uint32_t bucket = impl.place(order).bucket;
  impl.append(bucket, {impl.tag_of(order), pack(entry), entry.checksum});
  impl.set_size(size() + 1);
  const bool is_long = impl.header(bucket).count() > kLongBucket;
  if ((is_long || size() > impl.split_above_ * impl.buckets_.load(std::memory_order_relaxed)) &&
      impl.may_split()) {
    impl.split();
  }
}

bool Index::erase(std::uint64_t order, std::uint64_t lba) {
  Impl& impl = *impl_;
  const std::uint32_t bucket = impl.place(order).bucket;
  const int at = impl.locate(impl.header(bucket), order, lba);
  if (at < 0) return false;
  impl.erase_at(bucket, static_cast<unsigned>(at));
  return true;
}

std::uint64_t Index::erase_in_bucket(std::uint64_t from,
                                     const std::function<bool(const IndexEntry&)>& goes,
                                     std::vector<IndexEntry>& erased) {
  Impl& impl = *impl_;
  const Place at = impl.place(from);
  const std::uint64_t range = std::uint64_t{1} << (64 - at.bits);
  // From the last: what takes a removed entry's place has been looked at. A merge, which an erase
  // may bring about, ends the look at this bucket: it begins again.
  for (unsigned i = impl.header(at.bucket).count(); i-- > 0;) {
    const Chunk entries = impl.chunk(impl.header(at.bucket));
    const IndexEntry entry = unpack(entries.position(i), entries.checksum(i));
    if (!goes(entry)) continue;
    erased.push_back(entry);
    if (impl.erase_at(at.bucket, i)) return from;
  }
  return (from & ~(range - 1)) + range;
}

bool Index::replace(std::uint64_t order, std::uint64_t lba, const IndexEntry& entry) {
  Impl& impl = *impl_;
  const std::uint32_t bucket = impl.place(order).bucket;
  const BucketHeader before = impl.header(bucket);
  const int at = impl.locate(before, order, lba);
  if (at < 0) return false;
  const std::uint64_t position = pack(entry);
  impl.publish(bucket, before.begin_change());
  impl.chunk(before).set_place(static_cast<unsigned>(at), position, entry.checksum);
  impl.publish(bucket, before.next(before.chunk(), before.count()));
  return true;
}

std::uint64_t Index::bucket_entries(std::uint64_t from, std::vector<IndexEntry>& out) const {
  const Impl& impl = *impl_;
  std::uint64_t behind = 0;
  impl.read_bucket(from, [&](BucketHeader header, Place at) {
    out.clear();
    const std::uint64_t range = std::uint64_t{1} << (64 - at.bits);
    const std::uint64_t start = from & ~(range - 1);
    behind = start + range;  // 0 behind the last bucket
    // While a bucket splits or merges it also holds entries of the other half. And of a bucket
    // that has merged since the walk came to `from`, the first half was listed before.
    const std::uint16_t low = impl.tag_of(from), high = impl.tag_of(behind - 1);
    const Chunk entries = impl.chunk(header);
    for (unsigned i = 0; i < header.count(); ++i) {
      const std::uint16_t tag = entries.tag(i);
      if (tag < low || tag > high) continue;
      out.push_back(unpack(entries.position(i), entries.checksum(i)));
    }
  });
  return behind;
}

// The kernel takes the memory back, and gives zeroes for it: buckets without entries. It does so
// first with what a reader looks at last, so that none takes a chunk's zeroes for entries.
void Index::clear() {
  Impl& impl = *impl_;
  impl.directory_.release(0, impl.directory_bytes_.load(std::memory_order_relaxed));
  impl.directory_bytes_.store(0, std::memory_order_relaxed);
  impl.set_size(0);
  impl.chunks_.clear();
}

// The final number of buckets is known, so each chunk is written once, and none is split.
void Index::begin_load(std::uint64_t entries) {
  Impl& impl = *impl_;
  FURROW_CHECK(size() == 0);
  while (entries > impl.split_above_ * impl.buckets_.load(std::memory_order_relaxed) &&
         impl.may_split()) {
    impl.split();
  }
}

void Index::load(std::span<const Loaded> sorted) {
  begin_load(sorted.size());
  Loader loader(*this);
  for (const Loaded& loaded : sorted) loader.add(loaded);
  loader.finish();
}

// Moves whole buckets into the index; the last one may still grow, unless this is all.
void Index::Loader::flush(bool all) {
  Impl& impl = *index_.impl_;
  const std::uint64_t buckets = impl.buckets_.load(std::memory_order_relaxed);
  struct Run {
    std::uint32_t bucket;
    std::size_t first, end;  // in waiting_
    ChunkStore::Ref chunk;
  };
  std::vector<Run> runs;
  for (std::size_t first = 0, end = 0; first < count_; first = end) {
    const Place at = place_of(waiting_[first].order, buckets);
    const std::uint64_t prefix = waiting_[first].order >> (64 - at.bits);
    while (end < count_ && waiting_[end].order >> (64 - at.bits) == prefix) ++end;
    FURROW_CHECK(end - first <= kBucketEntriesMax);
    if (end != count_ || all) runs.push_back({at.bucket, first, end, 0});
  }
  if (runs.empty()) {  // all that waits may be of one bucket
    if (!all) waiting_.resize(waiting_.size() * 2);
    return;
  }
  const auto count = [](const Run& run) { return static_cast<unsigned>(run.end - run.first); };
  {
    const std::lock_guard lock(impl.load_mutex_);
    for (Run& run : runs) run.chunk = impl.chunks_.allocate(Chunk::class_of(count(run)));
  }
  for (const Run& run : runs) {
    const BucketHeader before = impl.header(run.bucket);
    FURROW_CHECK(before.count() == 0);
    const BucketHeader after = before.next(run.chunk, count(run));
    Chunk entries = impl.chunk(after);
    entries.set_bucket(run.bucket);
    for (unsigned i = 0; i < count(run); ++i) {
      const Loaded& loaded = waiting_[run.first + i];
      entries.set(i, {impl.tag_of(loaded.order), pack(loaded.entry), loaded.entry.checksum});
    }
    impl.publish(run.bucket, after);
  }
  const std::size_t moved = runs.back().end;
  impl.size_.fetch_add(moved, std::memory_order_relaxed);
  std::copy(waiting_.begin() + moved, waiting_.begin() + count_, waiting_.begin());
  count_ -= moved;
}

std::uint64_t Index::size() const { return impl_->size_.load(std::memory_order_relaxed); }

std::uint64_t Index::bytes() const {
  return sizeof(Index) + sizeof(Impl) + impl_->chunks_.bytes() +
         impl_->directory_bytes_.load(std::memory_order_relaxed);
}

}  // namespace furrow

#include "engine/files/staging.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace furrow {

// Of this machine and of one boot: native byte order, no versions to come.
struct Staging::Header {
  static constexpr std::uint64_t kMagic = 0x4745'5453'5752'5246;  // "FRRWSTEG"
  std::uint64_t magic;
  std::uint64_t mount, announced;
  std::uint32_t slot_bytes, slots;
};
struct alignas(64) Staging::SlotHeader {
  std::atomic<std::uint64_t> inode;  // 0: nothing
  std::uint64_t offset;
  std::uint16_t version;
  std::atomic<std::uint32_t> length;
};

namespace {

constexpr std::size_t kHeadBytes = 16384;
constexpr std::size_t kSlotHeadersAt = 512;
constexpr std::size_t kHugePageBytes = 2 << 20;

// Where huge pages may be, all but the last of them. MAP_FAILED as mmap().
void* map_aligned(std::size_t bytes, int flags, int fd) {
  const std::size_t reserved_bytes = bytes + kHugePageBytes;
  void* const reserved =
      mmap(nullptr, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* const from = static_cast<std::byte*>(reserved);
  const std::size_t before = -reinterpret_cast<std::uintptr_t>(from) % kHugePageBytes;
  void* const mapped = mmap(from + before, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    munmap(from, reserved_bytes);
    return MAP_FAILED;
  }
  if (before != 0) munmap(from, before);
  munmap(from + before + bytes, kHugePageBytes - before);
  return mapped;
}

// A device is given a chunk in as many pieces as it has of memory, and some take few at a time.
// Where the kernel has none (or is before 6.1), small pages do.
void ask_for_huge_pages(void* memory, std::size_t bytes) {
#ifdef MADV_COLLAPSE
  constexpr int kCollapse = MADV_COLLAPSE;
#else
  constexpr int kCollapse = 25;
#endif
  (void)madvise(memory, bytes, kCollapse);
}

// What a signal interrupts is taken back, as of a whole call (tmpfs, in kernels that look for any
// signal): so in steps, which one that comes again and again leaves time for. A file that may not
// become so long (ulimit -f) is not tried: the kernel sends a signal for it. Returns an errno.
int allocate(int fd, off_t bytes_before, off_t bytes) {
  rlimit limit{};
  const bool grows = bytes_before < bytes && getrlimit(RLIMIT_FSIZE, &limit) == 0;
  if (grows && limit.rlim_cur < static_cast<rlim_t>(bytes)) return EFBIG;
  constexpr off_t kStepBytes = 1 << 20;
  for (off_t at = 0; at < bytes;) {
    const int error = posix_fallocate(fd, at, std::min(kStepBytes, bytes - at));
    if (error != 0 && error != EINTR) return error;
    if (error == 0) at += kStepBytes;
  }
  return 0;
}

Status unusable(int error) {
  return {Code::io_error, Origin::engine,
          "what the last mount has not written yet cannot be opened (/dev/shm/furrow-UUID-DEVICE)",
          error};
}

}  // namespace

Staging::Staging(std::string name, std::uint32_t slot_bytes, std::uint64_t mount, Use use)
    : slot_bytes_(slot_bytes),
      mount_(mount),
      name_(std::move(name)),
      use_(use),
      left_behind_(use == Use::look),
      bytes_(kHeadBytes + std::size_t{kSlots} * slot_bytes) {
  static_assert(kSlotHeadersAt + kSlots * sizeof(SlotHeader) <= kHeadBytes);
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  shared_ = map_shared();
  if (!shared_) map_private();
  if (memory_ == nullptr) return;
  for (unsigned i = 0; i < kSlots; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_[i]->number = i;
    slots_[i]->data = memory_ + kHeadBytes + std::size_t{i} * slot_bytes_;
  }
}

Staging::~Staging() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  if (fd_ < 0) return;
  if (!left_behind_) shm_unlink(name_.c_str());
  close(fd_);
}

std::string Staging::name(const Uuid& volume, std::string_view device) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "/furrow-";
  for (const std::uint8_t byte : volume) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  if (!device.empty()) text.append("-").append(device);
  return text;
}

void Staging::discard(const Uuid& volume, std::string_view device) {
  shm_unlink(name(volume, device).c_str());
}

// Their UUIDs went with the old pool.
void Staging::discard_all(std::string_view device) {
  if (device.empty()) return;
  const std::string any = name(Uuid(), device), end = any.substr(any.size() - device.size() - 1);
  std::error_code error;
  for (std::filesystem::directory_iterator at("/dev/shm", error), none; !error && at != none;
       at.increment(error)) {
    const std::string found = "/" + at->path().filename().string();
    const bool of_device = found.size() == any.size() && found.ends_with(end);
    if (of_device && found.starts_with("/furrow-")) shm_unlink(found.c_str());
  }
}

// What is there already is opened, or the reason is told; else none of what goes wrong matters.
Status Staging::open_shared(int flags) {
  fd_ = shm_open(name_.c_str(), flags, 0600);
  if (fd_ < 0 && errno == ENOENT) {
    if (use_ == Use::own) fd_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    return {};
  }
  constexpr Status kAnotherUsers = {
      Code::permission, Origin::engine,
      "another user mounted it last, and what was not written yet is in that user's shared memory "
      "(/dev/shm/furrow-UUID-DEVICE): mount it as that user, or remove that"};
  if (fd_ < 0 && errno == EACCES) return kAnotherUsers;
  struct stat status {};
  if (fd_ < 0 || fstat(fd_, &status) != 0) return unusable(errno);
  return status.st_uid != geteuid() ? kAnotherUsers : Status();
}

// Only memory of our own counts: whoever else may write it could put bytes into files.
bool Staging::map_shared() {
  const bool look = use_ == Use::look;
  refusal_ = open_shared(look ? O_RDONLY : O_RDWR);
  if (fd_ < 0) return false;
  struct stat status {};
  const bool ours = fstat(fd_, &status) == 0 && status.st_uid == geteuid() &&
                    (status.st_mode & 0077) == 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0;
  const auto bytes = static_cast<off_t>(bytes_);
  const bool whole = status.st_size >= bytes;  // it may hold something
  // All of it is there before it is written to: where memory is short, that is when it shows.
  int error = ours && !look ? allocate(fd_, status.st_size, bytes) : 0;
  const bool there = ours && error == 0 && (whole || !look);
  const int kind = look ? MAP_PRIVATE : MAP_SHARED;  // who looks writes to pages of its own
  void* const mapped = there ? map_aligned(bytes_, kind, fd_) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    if (there) error = errno;
    if (ours && whole) refusal_ = unusable(error);
    if (ours && !whole && !look) shm_unlink(name_.c_str());  // others may need what it has got
    close(fd_);
    fd_ = -1;
    return false;
  }
  memory_ = static_cast<std::byte*>(mapped);
  if (!look) ask_for_huge_pages(memory_, bytes_);
  const auto& header = *reinterpret_cast<const Header*>(memory_);
  if (header.magic != Header::kMagic || (header.mount != mount_ && header.announced != mount_) ||
      header.slot_bytes != slot_bytes_ || header.slots != kSlots) {
    std::memset(memory_, 0, kHeadBytes);
  }
  return true;
}

void Staging::map_private() {
  void* const mapped = map_aligned(bytes_, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  if (mapped == MAP_FAILED) {
    if (refusal_.ok()) {
      refusal_ = {Code::io_error, Origin::engine, "no memory for what files are written", errno};
    }
    return;
  }
  memory_ = static_cast<std::byte*>(mapped);
  (void)madvise(memory_, bytes_, MADV_HUGEPAGE);
}

Staging::SlotHeader& Staging::header_of(const Slot& slot) const {
  return reinterpret_cast<SlotHeader*>(memory_ + kSlotHeadersAt)[slot.number];
}

std::vector<Staging::Left> Staging::left() const {
  std::vector<Left> left;
  for (const auto& slot : slots_) {
    const SlotHeader& header = header_of(*slot);
    const std::uint32_t length = header.length.load(std::memory_order_acquire);
    if (header.inode.load() == 0 || length == 0 || length > slot_bytes_) continue;
    left.push_back(
        {header.inode.load(), header.version, header.offset, {slot->data, length}, slot->number});
  }
  std::ranges::sort(left, {}, [](const Left& each) { return std::pair(each.inode, each.offset); });
  return left;
}

Staging::Slot& Staging::adopt(const Left& left, std::uint32_t skipped,
                              const std::shared_ptr<FileContent>& owner) {
  Slot& slot = *slots_[left.slot];
  slot.adopted = true;
  slot.owner = owner;
  slot.data += skipped;
  slot.offset = left.offset + skipped;
  slot.length = static_cast<std::uint32_t>(left.bytes.size()) - skipped;
  return slot;
}

void Staging::announce(std::uint64_t mount) {
  reinterpret_cast<Header*>(memory_)->announced = mount;
}

void Staging::begin(std::uint64_t mount) {
  for (const auto& slot : slots_) {
    if (slot->adopted) continue;
    header_of(*slot).inode.store(0, std::memory_order_release);
    free_.push_back(slot.get());
  }
  *reinterpret_cast<Header*>(memory_) = {Header::kMagic, mount, mount, slot_bytes_, kSlots};
}

Staging::Slot* Staging::take(const std::shared_ptr<FileContent>& owner, std::uint64_t inode,
                             std::uint16_t version, std::uint64_t offset) {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return nullptr;
  Slot& slot = *free_.back();
  free_.pop_back();
  slot.owner = owner;
  slot.tail = true;
  slot.used_at = ++uses_;
  begin_chunk(slot, version, offset);
  header_of(slot).inode.store(inode, std::memory_order_release);
  freed_.notify_all();
  return &slot;
}

void Staging::begin_chunk(Slot& slot, std::uint16_t version, std::uint64_t offset) {
  SlotHeader& header = header_of(slot);
  header.length.store(0, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  header.offset = offset;
  header.version = version;
  slot.offset = offset;
  slot.length = 0;
  slot.done = false;
  slot.known = KnownPage();
}

void Staging::publish(Slot& slot, std::uint32_t length) {
  slot.length = length;
  header_of(slot).length.store(length, std::memory_order_release);
}

std::shared_ptr<FileContent> Staging::idle() {
  const std::lock_guard lock(mutex_);
  Slot* oldest = nullptr;
  for (const auto& slot : slots_) {
    if (!may_give_up(*slot)) continue;
    if (oldest == nullptr || slot->used_at < oldest->used_at) oldest = slot.get();
  }
  if (oldest == nullptr) return nullptr;
  oldest->used_at = ++uses_;  // if it cannot give it up, another is asked the next time
  return oldest->owner.lock();
}

void Staging::wait_free(BlockingPool& pool) {
  std::unique_lock lock(mutex_);
  pool.wait(lock, freed_, [&] {
    return !free_.empty() ||
           std::ranges::any_of(slots_, [](auto& slot) { return may_give_up(*slot); });
  });
}

bool Staging::has_free_slot() {
  const std::lock_guard lock(mutex_);
  return !free_.empty();
}

bool Staging::short_of_slots() {
  const std::lock_guard lock(mutex_);
  return free_.size() < kSlots / 2;
}

void Staging::set_refused(Slot& slot, bool refused) {
  const std::lock_guard lock(mutex_);
  slot.refused = refused;
  freed_.notify_all();
}

void Staging::set_tail(Slot& slot, bool tail) {
  const std::lock_guard lock(mutex_);
  slot.tail = tail;
  freed_.notify_all();
}

void Staging::give_back(Slot& slot) {
  if (!left_behind_) header_of(slot).inode.store(0, std::memory_order_release);
  set_refused(slot, false);
  const std::lock_guard lock(mutex_);
  slot.tail = slot.adopted = false;
  slot.data = memory_ + kHeadBytes + std::size_t{slot.number} * slot_bytes_;
  slot.owner.reset();
  free_.push_back(&slot);
  freed_.notify_all();
}

}  // namespace furrow

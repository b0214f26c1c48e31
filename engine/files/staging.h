// Staging: the memory in which files' bytes wait until the device has them.
//
// A write to a file without a sync is to outlive the process, not the machine. So the memory is
// shared memory of the system (shm_open): when the process was killed, the next mount finds in it
// what the device was not given. It is found by the volume's UUID and the device's identity, so
// that a copy of a pool neither gets what was staged for the original nor takes it from that. Where
// there is none (or too little), the memory is private, and who writes must hand everything to the
// device at once (survives_kill()). Whose it is, is a number that the volume's first page has too:
// another machine or container, whose memory this is not, may have mounted the volume since.
//
// Threads: any. A slot belongs to who took it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/blocking_pool.h"
#include "engine/page_op.h"
#include "log/format.h"
#include "zone/status.h"

namespace furrow {

class FileContent;

class Staging {
 public:
  static constexpr unsigned kSlots = 128;

  // One chunk of a file on its way.
  struct Slot {
    std::byte* data = nullptr;
    std::uint64_t offset = 0;  // in the file
    std::uint32_t length = 0;
    bool done = false;     // the device has it
    bool refused = false;  // there was no room for it
    PageOp op;
    KnownPage known;                    // what stands under its key
    std::shared_ptr<FileContent> keep;  // while the device writes it

   private:
    friend class Staging;
    unsigned number = 0;
    bool adopted = false;
    std::weak_ptr<FileContent> owner;
    bool tail = false;  // its file may still add to it, or has not asked for it to be written
    std::uint64_t used_at = 0;
  };
  // What a process that was killed left.
  struct Left {
    std::uint64_t inode = 0;
    std::uint16_t version = 0;
    std::uint64_t offset = 0;
    std::span<const std::byte> bytes;
    unsigned slot = 0;
  };

  enum class Use : std::uint8_t {
    own,
    look,  // what was left is to be seen, and stays as it is
  };
  // `name`: see name(). `mount`: the mount whose leftovers count, by a number that no other has. A
  // second user of the same memory gets private memory.
  Staging(std::string name, std::uint32_t slot_bytes, std::uint64_t mount, Use use = Use::own);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // There is memory of that name which cannot be had: what it holds is not to be passed over. Or
  // there is no memory at all. ok: there is none of that name, or it is ours. Otherwise there is
  // nothing to do with this but to look at left(), which is empty.
  const Status& refusal() const { return refusal_; }
  // Until begin(): what was left, by inode and offset.
  std::vector<Left> left() const;
  // What there is no room for stays where it is, in a slot of `owner`'s: all but the first
  // `skipped` bytes.
  Slot& adopt(const Left& left, std::uint32_t skipped, const std::shared_ptr<FileContent>& owner);
  // What was left counts for that mount as well, whether begin() is still reached or not.
  void announce(std::uint64_t mount);
  // From now on it is the memory of this mount, and empty but for what was adopted.
  void begin(std::uint64_t mount);
  bool survives_kill() const { return shared_; }
  // What is staged now is for the next mount; nothing is staged any more.
  void leave_behind() { left_behind_ = true; }
  void forget() { left_behind_ = false; }  // all that is staged is with the device
  // Of the shared memory. `device`: device_identity(), which may be empty.
  static std::string name(const Uuid& volume, std::string_view device);
  // What a process that was killed left for a volume that is gone, or for all that were on the
  // device, which is a new pool's now, and locked, so that nobody else has one of them mounted.
  static void discard(const Uuid& volume, std::string_view device);
  static void discard_all(std::string_view device);

  // A free slot, for a file's bytes from `offset` on. Null: none is free; idle() may name a file
  // that can perhaps give one up, else wait_free().
  Slot* take(const std::shared_ptr<FileContent>& owner, std::uint64_t inode, std::uint16_t version,
             std::uint64_t offset);
  // The file whose unfinished or refused chunk was begun, or asked for, longest ago; null: none.
  std::shared_ptr<FileContent> idle();
  void wait_free(BlockingPool& pool);  // or until there is such a file
  bool short_of_slots();
  bool has_free_slot();
  void set_refused(Slot& slot, bool refused);
  // The first `length` bytes are the file's.
  void publish(Slot& slot, std::uint32_t length);
  void begin_chunk(Slot& slot, std::uint16_t version, std::uint64_t offset);  // the next one
  void set_tail(Slot& slot, bool tail);  // else nothing is added any more
  void give_back(Slot& slot);

 private:
  struct Header;
  struct SlotHeader;
  static bool may_give_up(const Slot& slot) { return slot.tail || slot.refused; }
  bool map_shared();
  Status open_shared(int flags);
  void map_private();
  SlotHeader& header_of(const Slot& slot) const;

  const std::uint32_t slot_bytes_;
  const std::uint64_t mount_;
  const std::string name_;
  const Use use_;
  int fd_ = -1;
  bool shared_ = false;
  Status refusal_;
  std::atomic<bool> left_behind_{false};
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Slot*> free_;
  std::uint64_t uses_ = 0;
};

}  // namespace furrow

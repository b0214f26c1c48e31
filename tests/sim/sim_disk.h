// SimDisk: a volume of kind block of a simulated pool: its clients, which draw operations by two
// sessions and keep some in flight, and what each LBA may hold, against which every answer is
// checked. It outlives power cuts. Not thread-safe.
//
// Operations in flight that change an LBA meet there in a third of the seeds alone: which is the
// last nobody knows then, until it is read. In its block of 4 KiB they meet everywhere, and so do
// readers.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/block/block_session.h"
#include "tests/sim/model.h"
#include "tests/sim/rot.h"
#include "tests/sim/sim_volume.h"
#include "tests/sim/swarm.h"
#include "zone/aligned_buffer.h"

namespace furrow::sim {

class SimDisk {
 public:
  SimDisk(World& world, const DiskShape& shape);

  const std::string& name() const { return shape_.options.name; }
  const VolumeOptions& options() const { return shape_.options; }
  // It may not have been made, or be deleted already: that was cut.
  bool maybe = false;
  // False: the power failed meanwhile, or (a failure of the world's where no fault excuses it) it
  // is not as it was left.
  bool attach(Pool& pool, Executor& executor);
  bool attached() const { return store_ != nullptr; }
  // It is deleted: what looks at its blocks finds what they held, or that it is gone.
  void end() { ended_ = true; }
  void detach();  // at_rest()
  bool at_rest() const;

  unsigned running() const { return running_; }
  static bool looks(BlockOp::Kind kind) {
    using enum BlockOp::Kind;
    return kind == read || kind == compare || kind == compare_and_write;
  }
  bool may_start() const { return attached() && running_ < shape_.depth; }
  void start_any();
  // Reads the next blocks of all; false: those were the last.
  bool start_verification();
  void restart_verification() { next_verified_ = 0; }
  // All that it holds; nothing may run. Then writes must be taken.
  void start_discard_of_all();
  void start_write();
  std::uint64_t writes_done() const { return writes_done_; }
  const Status& last_refusal() const { return last_refusal_; }
  bool grow(Pool& pool);  // true: it did
  // Asks for another quota, which is never more than now while operations run. True: it has it.
  bool set_quota(Pool& pool, std::uint64_t bytes);
  std::uint64_t quota_bytes() const { return store_->info().options.quota_bytes; }

  void cut(bool process_only);
  std::uint64_t id() const { return id_; }
  void strike(const StruckPage& page);  // of it
  // It cannot be detached any more: the process is about to end.
  void abandon();

 private:
  struct Client {
    SimDisk* disk = nullptr;
    BlockOp op;
    AlignedBuffer data, expected;
    std::uint64_t serial = 0, version = 0;  // of what it writes
    Window window;
    std::uint64_t started = 0;  // its number
    bool certain = false;       // of a comparison: `alike` is what it must find, if it is alone
    bool alike = false;
    bool busy = false;
  };
  struct Entry {
    History history;
    std::uint64_t touched = 0;  // the number of the start or end of a change that came last
    bool overlapped = false;    // several have run at once since none ran
    bool changing() const { return history.running != 0; }
  };
  // Several LBAs of one block that were written together.
  struct Together {
    std::uint64_t lba, count, version;
  };
  // A thread's way in.
  struct Way {
    std::unique_ptr<PageSession> pages;
    std::unique_ptr<BlockSession> blocks;
  };

  static bool changes(BlockOp::Kind kind);
  std::uint64_t lbas() const { return entries_.size(); }
  std::uint64_t lbas_per_block() const { return kBlockPageBytes / lba_bytes_; }
  std::span<std::byte> lba_of(std::byte* data, std::uint64_t index) const {
    return {data + index * lba_bytes_, lba_bytes_};
  }
  Client& free_client();
  void draw_range(BlockOp& op);
  void draw_data(Client& client);
  void draw_comparison(Client& client);
  void begin_change(Client& client);
  void submit(Client& client);
  void answered(Client& client);
  bool expected(const Client& client);
  bool may_be_rotten(const BlockOp& op) const;
  bool replaces_blocks(const BlockOp& op) const;
  void changed(Client& client);
  void was_read(Client& client);
  void compared(Client& client);
  bool alone(const Client& client) const;
  void check_together(const Client& client, std::uint64_t block,
                      std::span<const std::uint64_t> versions);
  std::vector<const State*> matching(std::uint64_t lba, const Window& window,
                                     std::span<const std::byte> bytes) const;
  void fill(std::uint64_t lba, std::uint64_t version, std::span<std::byte> bytes) const;
  void resize_to(std::uint64_t bytes);
  bool all_fits() const;
  void fail(const Client& client, std::uint64_t lba, const std::string& what);

  World& world_;
  const DiskShape shape_;
  const std::uint32_t lba_bytes_;
  PageStore* store_ = nullptr;
  std::uint64_t id_ = 0;
  Way ways_[2];
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<Entry> entries_;                   // by LBA
  std::vector<std::vector<Together>> together_;  // by block, the last few
  std::set<std::uint64_t> rotten_;               // blocks in which a bit was flipped
  std::uint64_t bytes_, bytes_tried_;            // its size, and one that it may have, too
  std::uint64_t quota_;
  std::vector<std::uint64_t> quotas_tried_;  // that it may have, too
  std::uint64_t next_serial_ = 1, next_version_ = 1;
  std::uint64_t started_ = 0;
  std::uint64_t next_verified_ = 0;  // LBA
  std::uint64_t writes_done_ = 0;
  bool ended_ = false;
  bool fits_ = false;  // all of it at once into its quota
  Status last_refusal_;
  unsigned running_ = 0;
  unsigned looking_ = 0;  // of these: at what blocks hold
};

}  // namespace furrow::sim

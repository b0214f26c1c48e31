// FaultDevice: a decorator that makes any ZonedDevice fail, reproducibly from a seed: power cuts,
// media errors, failing writes and flushes, zones that go read-only or offline, completions that
// are late and out of order. For tests and simulation; production devices have no hooks for it.
//
// It has the zone states itself, by the same ZoneTable as the emulated devices, and keeps every
// write, finish and reset in its own memory until a flush is acknowledged; only then does the inner
// device get them, by ordinary operations. So a power cut can still decide what becomes of the
// rest: power_cut() writes the survivors to the inner device, and that is what the next open sees.
//
// Threads: any; one lock inside. The inner device must be used by nobody else. Operations on it are
// waited for in poll(): an inner device that blocks makes poll() block.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "zone/aligned_buffer.h"
#include "zone/executor.h"
#include "zone/table_queue.h"

namespace furrow {

enum class CrashModel : std::uint8_t {
  // A zone keeps a prefix, in order of submission, of what was not flushed: a reset, then LBAs. The
  // last of them may be torn: the end of the LBA is garbage.
  drive,
  // As of emu: on a disk with a volatile cache: any 512-byte sectors of unflushed data survive, the
  // others hold zeroes, garbage or what the zone held before a reset; the zone's record (write
  // pointer, reset, finish) is any that it had since the last flush, independently of the data.
  emu,
};

struct FaultOptions {
  std::uint64_t seed = 1;
  unsigned delay_polls_max = 0;  // each completion waits for 0 to this many polls, in random order
  std::uint64_t latency_us = 0;  // and for this long by `clock`
  const Executor* clock = nullptr;  // needed for latency_us
  double read_error = 0;  // probability that an operation fails; a write that fails seals its zone
  double write_error = 0;
  double flush_error = 0;
};

class FaultDevice final : public ZonedDevice, private ZoneStore {
 public:
  FaultDevice(std::unique_ptr<ZonedDevice> inner, const FaultOptions& options);
  ~FaultDevice() override;

  Result<std::unique_ptr<IoQueue>> create_queue(unsigned depth) override;
  Result<std::vector<ZoneInfo>> report() override;
  ZoneInfo zone(ZoneId zone) const override { return table_.info(zone); }
  std::uint64_t zones_taken() const override { return zones_taken_.load(); }
  bool preallocated() const override { return inner_->preallocated(); }
  bool short_of_room() override { return inner_->short_of_room(); }
  std::uint64_t missing_bytes() const override { return inner_->missing_bytes(); }
  std::uint64_t misplaced_writes() const override { return inner_->misplaced_writes(); }
  std::uint64_t interruptions() const override { return inner_->interruptions(); }
  bool gone() const override { return pulled_out_.load() || inner_->gone(); }
  std::vector<std::string> damage() const override { return inner_->damage(); }
  Status mend() override { return inner_->mend(); }

  // The lights go out: decides what survives and writes that to the inner device; from now on every
  // operation, those in flight included, fails with aborted. Idempotent. Returns an error only when
  // the inner device failed.
  Status power_cut(CrashModel model);
  // Cuts the power by itself when so many more LBAs have been handed to write operations (0:
  // never).
  void cut_after(std::uint64_t lbas, CrashModel model);
  bool dead() const;
  // The device that is left, once all queues of this one are gone. This one is of no use then.
  std::unique_ptr<ZonedDevice> take_inner();

  // Media errors: reads of any of these LBAs fail, until the zone is reset; writes likewise.
  void fail_reads(Lba first, std::uint64_t lba_count);
  void fail_writes(Lba first, std::uint64_t lba_count);
  void fail_read_once(Lba lba);      // the next one
  void heal();                       // none of these LBAs fails any more
  void fail_flushes(unsigned next);  // so many flushes from now on
  void pull_out();                   // gone(): reads and writes of all LBAs fail from now on
  // The zone goes read_only or offline now. Only in this device: the inner one's zone stays usable.
  void degrade(ZoneId zone, ZoneState state);
  // All unflushed bytes held, for tests that bound it.
  std::uint64_t unflushed_bytes() const;

 private:
  friend class FaultQueue;

  // A zone's contents: the inner device's below base(), `tail` from there on.
  struct Media {
    std::uint64_t durable_lbas = 0;  // data that the inner device's zone holds
    bool durable_full = false;       // the inner device's zone is full
    bool was_reset = false;          // since then: what the inner zone holds is of no use
    bool full = false;               // finished or sealed
    std::uint32_t generation = 0;
    std::uint32_t durable_generation = 0;  // that of what the inner zone holds
    std::vector<std::byte> tail;           // not flushed
    std::vector<ZoneRecord> history;       // each record since the last flush, a sample if many
    std::uint64_t base() const { return was_reset ? 0 : durable_lbas; }
    bool dirty() const { return was_reset || full != durable_full || !tail.empty(); }
  };
  // What is left of a zone after a power cut, as operations on the inner device.
  struct Survivor {
    bool reset = false;
    bool finish = false;
    std::uint64_t offset = 0;
    std::vector<std::byte> data;
  };
  struct BadRange {
    Lba first;
    std::uint64_t lba_count;
    bool write;
    bool once = false;
  };

  Status save(ZoneId zone, const ZoneRecord& record) override;

  // The rest runs under mutex_.
  void take_write(const Io& io, Lba at);
  Status perform(Io& io, Lba at, std::uint64_t bytes);
  Status read(Io& io, Lba at, std::uint64_t bytes);
  Status flush();
  Status commit(ZoneId zone, bool resets_only);
  bool hits_bad_range(Lba at, std::uint64_t lba_count, bool write);
  bool chance(double probability);
  Status cut_now(CrashModel model);
  Survivor survive_drive(const Media& media);
  Result<Survivor> survive_emu(ZoneId zone, const Media& media);
  void decay(std::span<std::byte> lba, std::span<const std::byte> old, double survives);
  void scribble(std::span<std::byte> bytes);
  Status apply(ZoneId zone, const Survivor& survivor);
  Status inner_manage(Io::Op op, ZoneId zone);
  Status inner_transfer(Io::Op op, Lba at, std::byte* data, std::uint64_t lbas);

  const FaultOptions options_;
  std::unique_ptr<ZonedDevice> inner_;
  std::unique_ptr<IoQueue> inner_queue_;
  ZoneTable table_;
  std::atomic<std::uint64_t> zones_taken_{0};
  std::atomic<bool> pulled_out_{false};
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<Media> media_;
  std::vector<BadRange> bad_;
  AlignedBuffer transfer_;  // of inner_transfer()
  unsigned flushes_to_fail_ = 0;
  bool dead_ = false;
  std::uint64_t cut_after_lbas_ = 0;
  CrashModel cut_model_ = CrashModel::drive;
  Status cut_status_;
};

class FaultQueue final : public TableQueue {
 public:
  explicit FaultQueue(FaultDevice& device);
  Status register_buffers(std::span<const iovec> buffers) override;
  std::uint64_t system_calls() const override { return 0; }
  int wake_fd() const override { return -1; }

 private:
  struct Pending {
    Io* io;
    std::uint64_t due_poll;
    std::uint64_t due_ns;
  };
  void do_submit(Io& io) override;
  void start_transfer(Io& io) override;
  void start_flush(Io& io) override;
  void zone_was_reset(ZoneId) override {}
  unsigned do_poll() override;
  unsigned do_wait(std::uint64_t timeout_us) override;
  void enqueue(Io& io);
  unsigned abort_everything();

  FaultDevice& device_;
  std::uint64_t polls_ = 0;
  std::vector<Pending> pending_;
  std::vector<Pending> due_;
};

}  // namespace furrow

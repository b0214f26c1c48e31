// TableQueue: the part of an IoQueue that mem: and emu: share: it decides every operation by the
// ZoneTable at submission, hands transfers to the back end, and acknowledges writes in order.
#pragma once

#include "zone/device.h"
#include "zone/io_list.h"
#include "zone/zone_table.h"

namespace furrow {

class TableQueue : public IoQueue {
 protected:
  TableQueue(const Geometry& geometry, ZoneTable& table, bool read_only)
      : IoQueue(geometry), table_(table), read_only_(read_only) {}

  // For the back end. A transfer starts at first_lba(io) and has transfer_bytes(io) (a read's
  // part below the write pointer); bytes_done(io) is the back end's to count with.
  static Lba first_lba(const Io& io) { return io.op == Io::Op::append ? io.appended_at : io.lba; }

  // The back end calls this once for each transfer or flush that it was given, from
  // do_poll()/do_wait(). Returns the number of operations completed by it.
  unsigned end_transfer(Io& io, Status status);
  // Completes what needs no transfer, and tries again what waits. Returns the number completed.
  unsigned settle();
  // Something waits on another queue, on zone management or on space being given back: poll again
  // soon.
  bool waits() const {
    return waiting_.head != nullptr || held_.head != nullptr || later_.head != nullptr;
  }
  bool settled() const { return decided_.head == nullptr; }

  void do_submit(Io& io) override;
  // Completes the operation with `status` in the next poll.
  void decide(Io& io, Status status);
  // Completes all that is held here, whatever became of it, with `status`; returns the number. The
  // zone table is of no use afterwards.
  unsigned abort_lists(Status status);
  // The operation could not begin, for what goes on in its zone: it is tried again by settle(), and
  // what comes after it for the same zone stays behind it.
  void try_later(Io& io) { later_.push(io); }
  ZoneTable& table() const { return table_; }
  // How many buffers are registered: an Io::buffer_index from there on is refused.
  void set_registered(std::size_t count) { registered_ = static_cast<std::int64_t>(count); }

  using List = IoList;

 private:
  virtual void start_transfer(Io& io) = 0;  // read, write, append
  virtual void start_flush(Io& io) = 0;
  virtual void zone_was_reset(ZoneId zone) = 0;
  // Does the data of a write that is on the medium tell how far its zone is written?
  virtual bool data_tells(const Io&) const { return false; }
  // Reset, finish, open, close: at once, unless the back end's take time.
  virtual void manage(Io& io);

  void submit_read(Io& io);
  bool is_behind(const Io& io) const;
  void submit_write(Io& io);
  bool try_end(Io& io);  // of a write whose data is on the medium
  unsigned settle_waiting();

  ZoneTable& table_;
  const bool read_only_;
  std::int64_t registered_ = 0;
  List decided_;  // final Io::status; completed by the next poll
  List waiting_;  // on the medium, behind an earlier write to the same zone
  List held_;     // admitted, but their zone's space is being given back just now
  List later_;    // not admitted: zones are being managed
};

// Zeroes the bytes from `from` on of an Io's data.
void zero_data(const Io& io, std::uint64_t from);

}  // namespace furrow

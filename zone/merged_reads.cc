#include "zone/merged_reads.h"

#include <algorithm>

#include "zone/check.h"

namespace furrow {

MergedReads::MergedReads(const Geometry& geometry, std::uint64_t bytes_max,
                         std::uint32_t pieces_max)
    : geometry_(geometry),
      bytes_max_(std::min(bytes_max, kBytesMax)),
      pieces_max_(std::min(pieces_max, kPiecesMax)),
      all_(std::make_unique<Merged[]>(kCount)) {
  for (unsigned i = 0; i < kCount; ++i) free_.push(all_[i].io);
}

void MergedReads::never_completed(Io&) { FURROW_CHECK(false); }

// A read that ends at the write pointer has memory that is not transferred to.
bool MergedReads::fits(const Io& io) const {
  return io.op == Io::Op::read && !io.alone && !is_merged(io) &&
         transfer_bytes(io) == std::uint64_t{io.lba_count} * geometry_.lba_bytes;
}

// Does `next` go on where `last` ends, and is there room for it beside what there is?
bool MergedReads::goes_on(const Io& last, const Io& next, std::uint64_t bytes,
                          std::uint32_t pieces) const {
  return fits(next) && next.lba.value == last.lba.value + last.lba_count &&
         geometry_.zone_of(next.lba) == geometry_.zone_of(last.lba) &&
         bytes + transfer_bytes(next) <= bytes_max_ && pieces + next.iov_count <= pieces_max_;
}

Io& MergedReads::merge(Io& first, IoList& behind) {
  if (behind.head == nullptr || free_.head == nullptr || !fits(first) ||
      !goes_on(first, *behind.head, transfer_bytes(first), first.iov_count)) {
    return first;
  }
  auto& merged = reinterpret_cast<Merged&>(*free_.pop());
  Io& io = merged.io;
  io = Io{};
  io.on_complete = never_completed;
  io.lba = first.lba;
  io.iov = merged.pieces.data();
  Io* last = &first;
  for (;;) {
    std::copy_n(last->iov, last->iov_count, merged.pieces.begin() + io.iov_count);
    io.iov_count += last->iov_count;
    io.lba_count += last->lba_count;
    transfer_bytes(io) += transfer_bytes(*last);
    merged.members.push(*last);
    Io* const next = behind.head;
    if (next == nullptr || !goes_on(*last, *next, transfer_bytes(io), io.iov_count)) return io;
    last = behind.pop();
  }
}

IoList MergedReads::take_apart(Io& io) {
  auto& merged = reinterpret_cast<Merged&>(io);
  free_.push(io);
  return merged.members.take();
}

}  // namespace furrow

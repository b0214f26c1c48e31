// EmuQueue: the IoQueue of an emulated device.
#pragma once

#include <array>
#include <memory>

#include "zone/aligned_buffer.h"
#include "zone/emu_device.h"
#include "zone/ring_queue.h"

namespace furrow::emu {

class EmuQueue : public RingQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> create(EmuDevice& device, unsigned depth);

 protected:
  EmuQueue(EmuDevice& device, unsigned depth);
  // A test may say that the kernel failed what it did.
  void transferred(Io& io, int error) override;

 private:
  Part next_request(Io& io) override;
  void zone_was_reset(ZoneId zone) override { device_.reclaimer_.add(zone); }
  void start_flush(Io& io) override;
  bool data_tells(const Io& io) const override;
  bool make_room(Io& io);
  bool crosses_limit(Io& io, std::uint64_t zeroes_bytes) const;

  EmuDevice& device_;
  // A write that has taken zeroes along, until it ends, and its pieces; one at a time.
  static constexpr std::uint32_t kPiecesMax = 16;
  Io* with_zeroes_ = nullptr;
  std::uint64_t zeroes_bytes_ = 0;
  std::array<iovec, kPiecesMax + 1> pieces_{};
  AlignedBuffer zeroes_;  // made when first needed
};

}  // namespace furrow::emu

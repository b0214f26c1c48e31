// EmuQueue: the IoQueue of an emulated device.
#pragma once

#include <memory>

#include "zone/emu_device.h"
#include "zone/ring_queue.h"

namespace furrow::emu {

class EmuQueue final : public RingQueue {
 public:
  static Result<std::unique_ptr<IoQueue>> create(EmuDevice& device, unsigned depth);

 private:
  EmuQueue(EmuDevice& device, unsigned depth);
  void zone_was_reset(ZoneId zone) override { device_.reclaimer_.add(zone); }
  void transferred(Io& io, int error) override;

  EmuDevice& device_;
};

}  // namespace furrow::emu

// What of an emulated device's own structures is damaged while another copy of it is whole, and
// writing it anew.
//
// A damaged slot is none that a power cut left. A slot is stored by one aligned store of 8 bytes,
// and whatever writes it on, page cache, bus or sector, keeps such a word whole: a cut leaves the
// old one or the new one (of each copy by itself, so that one may be far behind the other, or both
// be older than the data), and both have a check that matches. (A drive that tears inside of a word
// leaves what cannot be told from rot: neither what it was nor what it was to be is known. It is
// told as damage, too, which it is: the write that it was about may have been acknowledged.)
#include <algorithm>
#include <string>

#include "zone/emu_device.h"
#include "zone/emu_superblocks.h"

namespace furrow::emu {

std::vector<std::string> EmuDevice::damage() const {
  std::vector<std::string> lines;
  for (const std::uint64_t offset : damaged_superblocks_) {
    lines.push_back("the device's superblock at byte " + std::to_string(offset) +
                    " is damaged; its other copy is whole");
  }
  for (unsigned copy = 0; copy < 2; ++copy) {  // a line for each run of zones: a page has 512
    auto slot = damaged_slots_.begin();
    while (slot != damaged_slots_.end()) {
      const std::uint32_t first = slot->zone.value;
      if ((slot++)->copy != copy) continue;
      std::uint32_t last = first;
      while (slot != damaged_slots_.end() && slot->copy == copy && slot->zone.value == last + 1) {
        last = (slot++)->zone.value;
      }
      lines.push_back((first == last ? "the slot of zone " + std::to_string(first) + " is"
                                     : "the slots of zones " + std::to_string(first) + " to " +
                                           std::to_string(last) + " are") +
                      " damaged in copy " + std::to_string(copy) +
                      " of the device's zone table; the other copy's " +
                      (first == last ? "is" : "are") + " whole");
    }
  }
  return lines;
}

Status EmuDevice::mend() {
  while (!damaged_superblocks_.empty()) {
    const Status status = mend_superblock(file_, damaged_superblocks_.back());
    if (!status.ok()) return status;
    damaged_superblocks_.pop_back();
  }
  return damaged_slots_.empty() ? Status() : mend_slots();
}

// One that was stored since the device was opened has its zone's latest state.
Status EmuDevice::mend_slots() {
  for (const DamagedSlot& slot : damaged_slots_) {
    if (codec_.decode(slot.zone, slots_.load(slot.copy, slot.zone))) continue;
    const Status status = slots_.store(slot.copy, slot.zone, slot.anew);
    if (!status.ok()) return status;
    next_copy_[slot.zone.value] = static_cast<std::uint8_t>(slot.copy ^ 1);
  }
  const Status status = sync_table();
  if (status.ok()) damaged_slots_.clear();
  return status;
}

}  // namespace furrow::emu

// ReservationLog: the Reservation Notification log pages of one controller that its host has not
// read yet, and which it does not want (Base specification 2.0, 5.16.1.24 and 5.27.1.26).
// Threads: one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>

#include "transport/namespaces.h"
#include "transport/nvme_reservation.h"
#include "transport/reservations.h"

namespace furrow::transport {

class ReservationLog {
 public:
  // What comes beyond these is lost, which a host sees by the count.
  static constexpr std::size_t kPagesMax = 64;

  // False: it is masked, or lost.
  bool add(const Namespace& ns, Reservations::Notice notice) {
    const auto type = static_cast<std::uint8_t>(notice);
    if ((mask(ns) >> type & 1) != 0) return false;
    if (++count_ == 0) ++count_;  // 0 stands for no page
    if (pages_.size() == kPagesMax) return false;
    nvme::reservation::NotificationLog& page = pages_.emplace_back();
    page.count = count_;
    page.type = type;
    page.nsid = ns.nsid;
    return true;
  }
  bool empty() const { return pages_.empty(); }
  // The oldest, or an empty one.
  nvme::reservation::NotificationLog oldest() const {
    if (pages_.empty()) return {};
    nvme::reservation::NotificationLog page = pages_.front();
    page.more = static_cast<std::uint8_t>(std::min<std::size_t>(pages_.size() - 1, 255));
    return page;
  }
  void drop_oldest() {
    if (!pages_.empty()) pages_.pop_front();
  }

  // Reservation Notification Mask: a bit for each Notice. It goes with the volume: another one's
  // namespace has none of it, and one that comes back has it still.
  std::uint8_t mask(const Namespace& ns) const {
    const auto found = masks_.find(ns.nsid);
    return found != masks_.end() && found->second.volume == ns.volume_id ? found->second.mask : 0;
  }
  void set_mask(const Namespace& ns, std::uint8_t mask) { masks_[ns.nsid] = {ns.volume_id, mask}; }

  void reset() { *this = {}; }

 private:
  std::deque<nvme::reservation::NotificationLog> pages_;
  struct Mask {
    std::uint64_t volume = 0;
    std::uint8_t mask = 0;
  };
  std::map<std::uint32_t, Mask> masks_;  // by NSID
  std::uint64_t count_ = 0;
};

}  // namespace furrow::transport

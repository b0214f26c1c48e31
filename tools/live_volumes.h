// LiveVolumes: tells of a pool that is being served, and makes, resizes and deletes its volumes.
// Hosts that are connected are told by the Namespace Attribute Changed event; a deleted volume's
// namespace is gone before the volume is, and its commands have all been answered.
//
// Threads: made, ended and destroyed on the pool's home thread; its other functions from any other
// one, which they block. All changes are made on the home thread; what one waits for delays no
// other.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>

#include "engine/pool.h"
#include "tools/admin_server.h"
#include "transport/target.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::tools {

// Until a change is answered `busy`, and until one that nobody asks for any more is called off.
struct LiveWaits {
  std::chrono::milliseconds idle{1000};     // a deletion, for hosts' commands
  std::chrono::milliseconds freeing{1000};  // a smaller quota, for zones
  std::chrono::milliseconds asked_again{30000};
};

class LiveVolumes {
 public:
  // All outlive it. `home` runs for as long as a function of this does.
  LiveVolumes(Pool& pool, ZonedDevice& device, transport::Target& target, EventLoop& home,
              LiveWaits waits = {})
      : pool_(pool), device_(device), target_(target), home_(home), waits_(waits) {}
  ~LiveVolumes() { end(); }
  LiveVolumes(const LiveVolumes&) = delete;
  LiveVolumes& operator=(const LiveVolumes&) = delete;

  // Before the target is stopped. Nothing is changed any more (503): reactors that end would not
  // take it over. What they have been told before they still do.
  void end();

  AdminAnswer pool();
  AdminAnswer zones();
  AdminAnswer list();
  // JSON, see volume_json.h. Where zones of volumes that were deleted are to be reset first it
  // waits a while for that and then answers `busy` with `goes_on`.
  AdminAnswer create(std::string_view options);
  // JSON, see volume_json.h. While zones are to be freed first it waits a while for that and then
  // answers `busy`: it goes on when it is asked again, and is called off when nobody does.
  AdminAnswer resize(std::string_view name, std::string_view options);
  // Hosts may take long over commands that were accepted. Where they do, the answer is `busy` with
  // `goes_on`: the namespace stays withdrawn, and the deletion goes on when it is asked for again.
  AdminAnswer remove(std::string_view name);

 private:
  // A volume whose namespace is withdrawn. The timer fires when nobody asks for it any more.
  struct Deletion : Timer {
    LiveVolumes* live = nullptr;
    std::uint64_t volume = 0;
    std::uint32_t nsid = 0;
    bool idle = false;  // no command uses it
  };

  // A volume of which zones are being freed: its user gets none meanwhile. Likewise.
  struct Shrinking : Timer {
    LiveVolumes* live = nullptr;
    std::uint64_t volume = 0;
  };

  void at_home(const std::function<void()>& what);  // and waits for it
  // On the home thread.
  Result<PageStore*> create_now(const VolumeOptions& options);
  ResizeAnswer resize_now(std::string_view name, const ResizeOptions& options);
  void call_off(std::uint64_t volume);
  Result<std::shared_ptr<Deletion>> begin_deletion(std::string_view name);
  Status go_on(const Deletion& deletion, std::string_view name);  // busy: not yet
  bool is_current(const Deletion& deletion) const;
  void forget(const Deletion& deletion);
  void give_back(const Deletion& deletion);

  Pool& pool_;
  ZonedDevice& device_;
  transport::Target& target_;
  EventLoop& home_;
  const LiveWaits waits_;
  // Of the home thread.
  std::map<std::uint64_t, std::shared_ptr<Deletion>> deletions_;  // by volume
  std::map<std::uint64_t, Shrinking> shrinking_;                  // likewise
  bool ended_ = false;
};

}  // namespace furrow::tools

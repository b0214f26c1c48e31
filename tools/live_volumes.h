// LiveVolumes: tells of a pool that is being served, and makes, resizes and deletes its volumes.
// Hosts that are connected are told by the Namespace Attribute Changed event; a deleted volume's
// namespace is gone before the volume is, and its commands have all been answered.
//
// Threads: made and ended on the pool's home thread; its other functions from any other one, which
// they block. One change at a time: another waits for it.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include "engine/pool.h"
#include "tools/admin_server.h"
#include "transport/target.h"
#include "zone/device.h"
#include "zone/event_loop.h"

namespace furrow::tools {

class LiveVolumes {
 public:
  // All outlive it. `home` runs for as long as a function of this does.
  LiveVolumes(Pool& pool, ZonedDevice& device, transport::Target& target, EventLoop& home)
      : pool_(pool), device_(device), target_(target), home_(home) {}

  // Before the target is stopped. Nothing is changed any more (503): reactors that end would not
  // take it over. What they have been told before they still do.
  void end() { ended_ = true; }

  AdminAnswer pool();
  AdminAnswer zones();
  AdminAnswer list();
  AdminAnswer create(std::string_view options);  // JSON, see volume_json.h
  // JSON, see volume_json.h. While zones are to be freed first it waits a while for that and then
  // answers `busy`: it goes on when it is asked again.
  AdminAnswer resize(std::string_view name, std::string_view options);
  AdminAnswer remove(std::string_view name);

 private:
  void at_home(const std::function<void()>& what);  // and waits for it
  Status remove_now(std::string_view name);
  Result<PageStore*> create_now(const VolumeOptions& options);

  Pool& pool_;
  ZonedDevice& device_;
  transport::Target& target_;
  EventLoop& home_;
  std::mutex changing_;
  bool ended_ = false;  // of the home thread
};

}  // namespace furrow::tools

#include "tools/live_volumes.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <semaphore>
#include <string>
#include <thread>

#include "tools/admin_http.h"
#include "tools/pool_json.h"
#include "tools/volume_json.h"

namespace furrow::tools {

namespace {

constexpr std::chrono::milliseconds kRetry{5};
constexpr std::chrono::seconds kBusyMax{3};
static_assert(kBusyMax < AdminHttp::kRequestMax);
static_assert(std::max(LiveWaits{}.idle, LiveWaits{}.freeing) < AdminHttp::kRequestMax);

int http_status(Code code) {
  switch (code) {
    case Code::ok:
      return 200;
    case Code::invalid_argument:
    case Code::too_large:
      return 400;
    case Code::not_found:
      return 404;
    case Code::exists:
    case Code::busy:
    case Code::in_use:
      return 409;
    case Code::unsupported:
      return 501;
    case Code::aborted:
      return 503;
    case Code::no_space:
    case Code::too_many_zones:
      return 507;
    default:
      return 500;
  }
}

AdminAnswer refusal(const Status& status) {
  return {http_status(status.code()), error_json(status).dump() + '\n'};
}

constexpr Status kEnding{Code::aborted, Origin::tool, "the server is ending"};
constexpr Status kNoVolume{Code::not_found, Origin::tool, "the pool has no volume of that name"};

AdminAnswer going_on(const Status& status) {
  nlohmann::ordered_json json = error_json(status);
  json["goes_on"] = true;
  return {http_status(status.code()), json.dump() + '\n'};
}

}  // namespace

void LiveVolumes::at_home(const std::function<void()>& what) {
  struct Call : Task {
    const std::function<void()>* what = nullptr;
    std::binary_semaphore done{0};
  } call;
  call.what = &what;
  call.run = [](Task& task) {
    auto& self = static_cast<Call&>(task);
    (*self.what)();
    self.done.release();
  };
  home_.post(call);
  call.done.acquire();
}

AdminAnswer LiveVolumes::pool() {
  nlohmann::ordered_json pool;
  at_home([&] { pool = pool_json(pool_); });
  return {200, pool.dump() + '\n'};
}

// Not at home: a drive is asked, which takes its time.
AdminAnswer LiveVolumes::zones() {
  Result<nlohmann::ordered_json> zones = zones_json(device_);
  if (!zones.ok()) return refusal(zones.status());
  ZoneUses uses;
  at_home([&] { uses = zone_uses(pool_); });
  add_uses(uses, *zones);
  return {200, zones->dump() + '\n'};
}

AdminAnswer LiveVolumes::list() {
  auto volumes = nlohmann::ordered_json::array();
  at_home([&] {
    for (const PageStore* store : pool_.stores()) {
      volumes.push_back(volume_json(*store));
      if (deletions_.contains(store->info().id)) volumes.back()["withdrawn"] = true;
    }
  });
  return {200, volumes.dump() + '\n'};
}

Result<PageStore*> LiveVolumes::create_now(const VolumeOptions& options) {
  if (ended_) return kEnding;
  return pool_.create_volume(options);
}

// Zones of volumes that were deleted may have to be reset for it.
AdminAnswer LiveVolumes::create(std::string_view text) {
  const Result<VolumeOptions> options = options_from_json(text);
  if (!options.ok()) return refusal(options.status());
  const auto until = std::chrono::steady_clock::now() + waits_.freeing;
  const auto served = std::make_shared<std::binary_semaphore>(0);
  for (;;) {
    Status status;
    AdminAnswer answer;
    at_home([&] {
      const Result<PageStore*> made = create_now(*options);
      status = made.status();
      if (!made.ok()) return;
      target_.namespaces_changed([served] { served->release(); });
      answer = {201, volume_json(**made).dump() + '\n'};
    });
    if (status.ok()) {
      served->acquire();
      return answer;
    }
    if (status.code() != Code::busy) return refusal(status);
    if (std::chrono::steady_clock::now() >= until) return going_on(status);
    std::this_thread::sleep_for(kRetry);
  }
}

ResizeAnswer LiveVolumes::resize_now(std::string_view name, const ResizeOptions& options) {
  if (ended_) return {.status = kEnding};
  const ResizeAnswer answer = pool_.resize_volume(name, options);
  if (answer.zones_to_free == 0) return answer;
  const std::uint64_t id = pool_.find(name)->info().id;
  Shrinking& shrinking = shrinking_[id];
  shrinking.live = this;
  shrinking.volume = id;
  shrinking.fire = [](Timer& timer) {
    const auto& late = static_cast<Shrinking&>(timer);
    late.live->call_off(late.volume);
  };
  home_.start(shrinking, std::chrono::nanoseconds(waits_.asked_again).count());
  return answer;
}

// Of a resize that may have come to its end: the volume has all of its quota (again).
void LiveVolumes::call_off(std::uint64_t volume) {
  shrinking_.erase(volume);
  for (const PageStore* store : pool_.stores()) {
    if (store->info().id != volume) continue;
    const VolumeOptions& now = store->info().options;
    (void)pool_.resize_volume(now.name, {.quota_bytes = now.quota_bytes});
  }
}

AdminAnswer LiveVolumes::resize(std::string_view name, std::string_view text) {
  const Result<ResizeOptions> options = resize_from_json(text);
  if (!options.ok()) return refusal(options.status());
  const auto until = std::chrono::steady_clock::now() + waits_.freeing;
  for (;;) {
    ResizeAnswer answer;
    AdminAnswer resized;
    at_home([&] {
      answer = resize_now(name, *options);
      if (!answer.status.ok()) return;
      target_.namespaces_changed();
      resized = {200, volume_json(*pool_.find(name)).dump() + '\n'};
    });
    const Code code = answer.status.code();
    if (code == Code::ok) return resized;
    const bool late = std::chrono::steady_clock::now() >= until;
    if (code != Code::busy || late) {
      nlohmann::ordered_json json = error_json(answer);
      if (code == Code::busy) json["goes_on"] = true;
      return {http_status(code), json.dump() + '\n'};
    }
    std::this_thread::sleep_for(kRetry);
  }
}

// Its own background work (a note, a collection) may keep a volume busy for a moment.
AdminAnswer LiveVolumes::remove(std::string_view name) {
  Result<std::shared_ptr<Deletion>> begun = kEnding;
  at_home([&] { begun = begin_deletion(name); });
  if (!begun.ok()) return refusal(begun.status());
  const std::shared_ptr<Deletion> deletion = *begun;
  const auto since = std::chrono::steady_clock::now();
  for (;;) {
    Status status;
    bool idle = false;
    at_home([&] {
      status = go_on(*deletion, name);
      idle = deletion->idle;
    });
    if (status.ok()) return {200, nlohmann::ordered_json{{"deleted", name}}.dump() + '\n'};
    if (status.code() != Code::busy) return refusal(status);
    const auto waited = std::chrono::steady_clock::now() - since;
    if (!idle && waited >= waits_.idle) return going_on(status);
    if (idle && waited >= kBusyMax) break;
    std::this_thread::sleep_for(kRetry);
  }
  at_home([&] { give_back(*deletion); });
  return refusal({Code::busy, Origin::tool, "something still changes the volume; try again"});
}

Result<std::shared_ptr<LiveVolumes::Deletion>> LiveVolumes::begin_deletion(std::string_view name) {
  const PageStore* const store = pool_.find(name);
  if (store == nullptr) return kNoVolume;
  if (ended_) return kEnding;
  std::shared_ptr<Deletion>& deletion = deletions_[store->info().id];
  if (deletion == nullptr) {
    deletion = std::make_shared<Deletion>();
    deletion->live = this;
    deletion->volume = store->info().id;
    deletion->nsid = store->info().options.nsid;
    deletion->fire = [](Timer& timer) {
      const auto& late = static_cast<Deletion&>(timer);
      late.live->give_back(late);
    };
    target_.withdraw_namespace(deletion->nsid, [deletion] { deletion->idle = true; });
  }
  home_.start(*deletion, std::chrono::nanoseconds(waits_.asked_again).count());
  return deletion;
}

Status LiveVolumes::go_on(const Deletion& deletion, std::string_view name) {
  if (ended_) return kEnding;
  if (!is_current(deletion)) {  // nor is it idle, perhaps
    if (pool_.find(name) == nullptr) return kNoVolume;
    return {Code::in_use, Origin::tool, "another request to delete it has failed; try again"};
  }
  if (!deletion.idle) {
    return {Code::busy, Origin::tool,
            "its namespace is withdrawn, and hosts' commands on it are not done yet: ask again, "
            "and the deletion goes on"};
  }
  const Status status = pool_.delete_volume(name);
  if (status.ok()) {
    pool_.forget_deleted();  // their namespaces were idle, and are gone
    forget(deletion);
    target_.namespaces_changed();
  } else if (status.code() != Code::busy) {
    give_back(deletion);
  }
  return status;
}

bool LiveVolumes::is_current(const Deletion& deletion) const {
  const auto found = deletions_.find(deletion.volume);
  return found != deletions_.end() && found->second.get() == &deletion;
}

void LiveVolumes::forget(const Deletion& deletion) {
  const auto found = deletions_.find(deletion.volume);
  home_.stop(*found->second);
  deletions_.erase(found);
}

void LiveVolumes::give_back(const Deletion& deletion) {
  if (!is_current(deletion)) return;
  const std::uint32_t nsid = deletion.nsid;
  forget(deletion);
  target_.give_back_namespace(nsid);
}

void LiveVolumes::end() {
  ended_ = true;
  for (const auto& [volume, deletion] : deletions_) home_.stop(*deletion);
  deletions_.clear();
  for (auto& [volume, shrinking] : shrinking_) home_.stop(shrinking);
  shrinking_.clear();
}

}  // namespace furrow::tools

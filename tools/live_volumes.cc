#include "tools/live_volumes.h"

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>

#include "tools/pool_json.h"
#include "tools/volume_json.h"

namespace furrow::tools {

namespace {

constexpr std::chrono::milliseconds kRetry{5};
constexpr std::chrono::seconds kBusyMax{3};
constexpr std::chrono::seconds kFreeingMax{1};  // an answer has five

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
    for (const PageStore* store : pool_.stores()) volumes.push_back(volume_json(*store));
  });
  return {200, volumes.dump() + '\n'};
}

Result<PageStore*> LiveVolumes::create_now(const VolumeOptions& options) {
  if (ended_) return kEnding;
  return pool_.create_volume(options);
}

AdminAnswer LiveVolumes::create(std::string_view text) {
  const Result<VolumeOptions> options = options_from_json(text);
  if (!options.ok()) return refusal(options.status());
  const std::lock_guard lock(changing_);
  const auto served = std::make_shared<std::binary_semaphore>(0);
  AdminAnswer answer;
  at_home([&] {
    const Result<PageStore*> made = create_now(*options);
    if (!made.ok()) {
      answer = refusal(made.status());
      served->release();
      return;
    }
    target_.namespaces_changed([served] { served->release(); });
    answer = {201, volume_json(**made).dump() + '\n'};
  });
  served->acquire();
  return answer;
}

AdminAnswer LiveVolumes::resize(std::string_view name, std::string_view text) {
  const Result<ResizeOptions> options = resize_from_json(text);
  if (!options.ok()) return refusal(options.status());
  const std::lock_guard lock(changing_);
  const auto until = std::chrono::steady_clock::now() + kFreeingMax;
  for (;;) {
    ResizeAnswer answer;
    AdminAnswer resized;
    at_home([&] {
      answer = ended_ ? ResizeAnswer{.status = kEnding} : pool_.resize_volume(name, *options);
      if (!answer.status.ok()) return;
      target_.namespaces_changed();
      resized = {200, volume_json(*pool_.find(name)).dump() + '\n'};
    });
    const Code code = answer.status.code();
    if (code == Code::ok) return resized;
    if (code != Code::busy || std::chrono::steady_clock::now() >= until) {
      return {http_status(code), error_json(answer).dump() + '\n'};
    }
    std::this_thread::sleep_for(kRetry);
  }
}

AdminAnswer LiveVolumes::remove(std::string_view name) {
  const std::lock_guard lock(changing_);
  const Status status = remove_now(name);
  if (!status.ok()) return refusal(status);
  return {200, nlohmann::ordered_json{{"deleted", name}}.dump() + '\n'};
}

// Its own background work (a note, a collection) may keep a volume busy for a moment.
Status LiveVolumes::remove_now(std::string_view name) {
  struct Withdrawal {
    std::binary_semaphore idle{0};
  };
  const auto withdrawal = std::make_shared<Withdrawal>();
  Status found;
  std::uint32_t nsid = 0;
  at_home([&] {
    const PageStore* const store = pool_.find(name);
    if (store == nullptr) {
      found = {Code::not_found, Origin::tool, "the pool has no volume of that name"};
    } else if (ended_) {
      found = kEnding;
    } else {
      nsid = store->info().options.nsid;
      target_.withdraw_namespace(nsid, [withdrawal] { withdrawal->idle.release(); });
    }
  });
  if (!found.ok()) return found;
  withdrawal->idle.acquire();
  const auto until = std::chrono::steady_clock::now() + kBusyMax;
  for (;;) {
    Status status;
    at_home([&] {
      status = ended_ ? kEnding : pool_.delete_volume(name);
      if (status.ok()) {
        target_.namespaces_changed();
      } else if (status.code() != Code::busy && !ended_) {
        target_.give_back_namespace(nsid);
      }
    });
    if (status.code() != Code::busy) return status;
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(kRetry);
  }
  at_home([&] {
    if (!ended_) target_.give_back_namespace(nsid);
  });
  return {Code::busy, Origin::tool, "something still changes the volume; try again"};
}

}  // namespace furrow::tools

// ModelRun: one seed of model_test.cc: a pool on a fault device, or on a drive, operations drawn at
// random, and the states that each key may be in. Its functions fail the test that runs them
// (gtest).
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/kill_device.h"
#include "tests/engine/store_model.h"
#include "zone/fault_device.h"

namespace furrow::testing {

constexpr std::uint64_t kKeys = 400;
constexpr std::uint64_t kGroups = 3;
constexpr std::uint32_t kValueBytesMax = 128 << 10;

struct Running {
  PageOp op;
  AlignedBuffer page;
  std::vector<Key> keys;
  std::uint64_t number = 0;
  PageState state;       // that the key is to have
  bool changes = false;  // its state
};

class ModelRun {
 public:
  // `drive`: the URI of one, all of whose data is lost; empty: a device is drawn.
  ModelRun(std::uint64_t seed, VolumeMode mode, std::string drive)
      : random_(seed), cache_(mode == VolumeMode::cache), drive_(std::move(drive)), keys_(kKeys) {}

  void make();
  void live();  // some rounds, or until the power is cut
  void fill();  // a store, until it takes no more
  void stop();  // and opens again
  std::uint64_t found = 0, cuts = 0, recovery_cuts = 0, kills = 0, resets = 0, refusals = 0;

 private:
  bool on_drive() const { return !drive_.empty(); }
  bool dead() const { return on_drive() ? kill_->dead() : fault_->dead(); }
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool one_in(std::uint64_t n) { return draw(n) == 0; }
  std::uint64_t now_s() const { return rig_.loop.wall_s(); }
  std::string name(std::uint64_t number) const;

  void open_drive();
  void wrap(std::unique_ptr<ZonedDevice> inner);
  void wait();
  void round();
  std::unique_ptr<Running> draw_keyed(std::uint64_t number);
  void draw_put(Running& one);
  std::unique_ptr<Running> draw_list();
  void remove_group();
  void list_all();
  void same_but_evicted(std::span<const Key> keys, std::span<const Key> later);

  void answered(Running& one);
  void get_answered(const Running& one, Code code);
  void put_answered(const Running& one, Code code);
  void remove_answered(const Running& one, Code code);
  void pin_answered(const Running& one, Code code);
  void list_answered(const Running& one, const std::set<std::uint64_t>& touched);
  void no_space(const Running& one);
  void is_absent(std::uint64_t number);
  void is_present(std::uint64_t number);
  void changed(const Running& one);

  void close();
  void cut_no_more();
  void power_up();
  void get(std::uint64_t number, PageOp& op);
  void recovered(std::uint64_t number);
  void group_went_as_one();
  void compare();

  std::mt19937_64 random_;
  const bool cache_;
  const std::string drive_;
  std::vector<KeyModel> keys_;
  Rig rig_{""};
  FaultDevice* fault_ = nullptr;  // what the pool is on: this, or
  KillDevice* kill_ = nullptr;    // on a drive
  AlignedBuffer page_{kValueBytesMax};
  std::uint64_t lba_bytes_ = 0;
  std::uint64_t round_ = 1, version_ = 0;
  std::uint64_t evicted_ = 0;  // pages, as the engine counted in the pools closed since
  std::uint64_t missing_ = 0;  // pages that were not there and must have been evicted
  // Whole before their group's deletion was cut: all of them are there afterwards, or none.
  std::vector<std::uint64_t> cut_group_;
};

}  // namespace furrow::testing

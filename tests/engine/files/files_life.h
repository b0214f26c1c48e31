// FilesLife: random work on files, ended by a power cut, a kill or an unmount, again and again on
// one small pool, all drawn from a seed; and what must be there after each end:
//   names   after a power cut those of one moment, not before the last that was made durable, as
//           calls are ordered; after a kill or an unmount those that were there;
//   bytes   after a power cut a beginning, with all that a sync or a change made durable; after a
//           kill or an unmount all;
//   space   once all is removed, no page is left but the first one and the root's record.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/files/files_rig.h"

namespace furrow::testing {

class FilesLife : public FilesRig {
 public:
  enum class End : std::uint8_t { power_cut, kill, unmount };
  struct Plan {
    bool faults = false;  // the device fails now and then
    bool full = false;    // most of the room is taken
  };
  // In memory where the system has some to give: what is durable says the fault device.
  FilesLife(std::uint64_t seed, Plan plan)
      : FilesRig(std::filesystem::exists("/dev/shm") ? std::filesystem::path("/dev/shm")
                                                     : std::filesystem::temp_directory_path()),
        random_(seed),
        plan_(plan) {}

  void run(unsigned rounds);

 private:
  using Names = std::map<std::string, std::uint64_t>;  // inodes by path; 0: any
  struct Body {
    std::string bytes;
    std::size_t synced = 0;
    std::optional<std::string> instead;  // or these: a change that was not acknowledged
    bool dirty = false;                  // a sync certainly has something to do, so it flushes
    bool failed = false;                 // the device failed a call: nothing more is asked of it
    std::unique_ptr<OpenFile> file;
  };

  unsigned draw(unsigned below) { return static_cast<unsigned>(random_() % below); }
  std::string random_path();
  std::string random_text();
  Body* random_open();

  void make_pool();
  void round();
  bool begin(End end);
  bool step();  // false: the power is gone
  bool step_names(unsigned which);
  bool step_bytes(unsigned which, Body& body);
  bool create();
  bool reopen();
  bool append(Body& body);
  bool overwrite(Body& body);
  bool cut(Body& body);
  bool sync(Body& body);
  bool close(Body& body);
  bool sync_names();
  // After a call that would turn the names into `next`. False: the power is gone.
  bool named(const Status& status, Names next);
  // After a call that would turn the bytes into `next`.
  bool changed(const Status& status, Body& body, const std::string& next);
  bool goes_on(const Status& status, Body* body);

  // A device that fails its last flush loses what a power cut takes.
  bool may_lose(End end) const { return end == End::power_cut || plan_.faults; }
  Names names_now() const;
  void list(const std::string& directory, Names& names) const;
  static bool same(const Names& model, const Names& there);
  void verify(End end);
  void verify_bytes(End end, const std::string& path, const Body& body);
  void relieve();
  void remove_all();

  std::mt19937_64 random_;
  const Plan plan_;
  Names names_;
  std::set<std::string> directories_;
  std::vector<Names> moments_;  // since names were made durable
  std::map<std::uint64_t, Body> bodies_;
  bool gone_ = false;  // the power
};

}  // namespace furrow::testing

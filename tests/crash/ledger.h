// Ledger: what the writers of a crash test were told, in memory that outlives them: a mapped file
// that the process which kills them shares. Each key of a volume has a cell: what was acknowledged
// last, and what was asked for since. A writer has one operation of a key in flight at a time, so
// after a kill the key is as acknowledged, or as asked for.
//
// Threads: any; a cell belongs to one writer's thread while that lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace furrow::crash {

// What a key holds: nothing (it was never stored, or deleted), or the page of a version.
struct Content {
  std::uint64_t version = 0;  // of the put or the delete; never used twice in a ledger
  bool page = false;
  bool same_as(const Content& other) const {
    return page == other.page && (!page || version == other.version);
  }
};

class Ledger {
 public:
  static constexpr unsigned kVolumes = 2;
  static constexpr std::uint64_t kKeysMax = 4096;  // of a volume

  // Both end the process when the file cannot be made or mapped.
  static Ledger create(const std::string& path);
  static Ledger open(const std::string& path);

  Content acknowledged(unsigned volume, std::uint64_t key) const;
  Content asked(unsigned volume, std::uint64_t key) const;
  bool settled(unsigned volume, std::uint64_t key) const;  // nothing was asked for since
  void ask(unsigned volume, std::uint64_t key, Content content);
  void acknowledge(unsigned volume, std::uint64_t key);  // what was asked for has been done
  void withdraw(unsigned volume, std::uint64_t key);     // and that it has not
  void settle(unsigned volume, std::uint64_t key, Content found);

  std::uint64_t next_version() { return shared_->next_version.fetch_add(1); }
  std::uint64_t acknowledgements() const { return shared_->acknowledgements.load(); }
  std::uint64_t refusals() const { return shared_->refusals.load(); }
  void count_refusal() { shared_->refusals.fetch_add(1); }

  // What a writer found wrong; the first stays.
  void complain(const std::string& text);
  std::string complaint() const;

 private:
  struct Cell {
    std::atomic<std::uint64_t> acknowledged, asked;  // version * 2 + page
  };
  struct Shared {
    std::atomic<std::uint64_t> next_version, acknowledgements, refusals;
    std::atomic<bool> complained, complaint_whole;
    char complaint[1000];
    Cell cells[kVolumes][kKeysMax];
  };
  static Ledger map(const std::string& path, int flags);
  Cell& cell(unsigned volume, std::uint64_t key) const { return shared_->cells[volume][key]; }

  struct Unmap {
    void operator()(Shared* shared) const;
  };
  std::unique_ptr<Shared, Unmap> shared_;
};

}  // namespace furrow::crash

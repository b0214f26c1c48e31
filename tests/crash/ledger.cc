#include "tests/crash/ledger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace furrow::crash {

namespace {

std::uint64_t pack(Content content) { return content.version * 2 + (content.page ? 1 : 0); }
Content unpack(std::uint64_t word) { return {word / 2, word % 2 != 0}; }

}  // namespace

void Ledger::Unmap::operator()(Shared* shared) const { munmap(shared, sizeof(Shared)); }

Ledger Ledger::map(const std::string& path, int flags) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600);
  void* memory = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0) {
    memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (memory == MAP_FAILED) {
    fmt::print(stderr, "furrow-crash: cannot map {}: {}\n", path, std::strerror(errno));
    std::exit(2);
  }
  close(fd);
  Ledger ledger;
  ledger.shared_.reset(static_cast<Shared*>(memory));
  return ledger;
}

// The file's zeroes are a ledger in which nothing was stored yet, but for the versions.
Ledger Ledger::create(const std::string& path) {
  Ledger ledger = map(path, O_CREAT | O_TRUNC);
  ledger.shared_->next_version.store(1);
  return ledger;
}

Ledger Ledger::open(const std::string& path) { return map(path, 0); }

Content Ledger::acknowledged(unsigned volume, std::uint64_t key) const {
  return unpack(cell(volume, key).acknowledged.load());
}

Content Ledger::asked(unsigned volume, std::uint64_t key) const {
  return unpack(cell(volume, key).asked.load());
}

bool Ledger::settled(unsigned volume, std::uint64_t key) const {
  return cell(volume, key).acknowledged.load() == cell(volume, key).asked.load();
}

void Ledger::ask(unsigned volume, std::uint64_t key, Content content) {
  cell(volume, key).asked.store(pack(content));
}

void Ledger::acknowledge(unsigned volume, std::uint64_t key) {
  cell(volume, key).acknowledged.store(cell(volume, key).asked.load());
  shared_->acknowledgements.fetch_add(1);
}

void Ledger::withdraw(unsigned volume, std::uint64_t key) {
  cell(volume, key).asked.store(cell(volume, key).acknowledged.load());
}

void Ledger::settle(unsigned volume, std::uint64_t key, Content found) {
  cell(volume, key).asked.store(pack(found));
  cell(volume, key).acknowledged.store(pack(found));
}

void Ledger::complain(const std::string& text) {
  if (shared_->complained.exchange(true)) return;
  std::strncpy(shared_->complaint, text.c_str(), sizeof shared_->complaint - 1);
  shared_->complaint_whole.store(true);
}

std::string Ledger::complaint() const {
  return shared_->complaint_whole.load() ? std::string(shared_->complaint) : std::string();
}

}  // namespace furrow::crash

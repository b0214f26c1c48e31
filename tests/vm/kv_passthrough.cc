// usage: kv_passthrough DEVICE NSID
// A Key Value client of another make: stores, finds, lists, retrieves and deletes pages through the
// generic device of a namespace (/dev/ng1n1) by io_uring's passthrough commands, many in flight, as
// a program on a Linux host would. Exit status 0: every answer was right.
#include <endian.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/nvme_ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

// Key Value Command Set specification.
constexpr std::uint8_t kStore = 0x01, kRetrieve = 0x02, kList = 0x06, kDelete = 0x10, kExist = 0x14;
constexpr int kKeyDoesNotExist = 0x87, kStatusMask = 0x7FF;
constexpr unsigned kDepth = 32, kKeys = 500;
constexpr std::uint32_t kBytesMax = 256 << 10;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "kv_passthrough: %s\n", text.c_str());
  std::exit(1);
}

struct Command {
  std::uint8_t opcode = 0;
  std::array<std::uint8_t, 16> key{};
  std::uint8_t key_bytes = 0;
  void* data = nullptr;
  std::uint32_t bytes = 0;
  int status = 0;            // of NVMe; negative: an errno
  std::uint64_t result = 0;  // the completion's first two words
};

class Device {
 public:
  Device(const char* path, std::uint32_t nsid) : nsid_(nsid), fd_(open(path, O_RDWR)) {
    if (fd_ < 0) fail(std::string("cannot open ") + path);
    const int rc = io_uring_queue_init(kDepth, &ring_, IORING_SETUP_SQE128 | IORING_SETUP_CQE32);
    if (rc != 0) fail(std::string("io_uring: ") + std::strerror(-rc));
  }
  ~Device() {
    io_uring_queue_exit(&ring_);
    close(fd_);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // All of them, kDepth at a time in flight.
  void run(std::vector<Command>& commands) {
    std::size_t given = 0, answered = 0;
    while (answered < commands.size()) {
      while (given < commands.size() && given - answered < kDepth) give(commands[given++]);
      if (io_uring_submit_and_wait(&ring_, 1) < 0) fail("io_uring_enter");
      io_uring_cqe* cqe = nullptr;
      while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
        auto& done = *static_cast<Command*>(io_uring_cqe_get_data(cqe));
        done.status = cqe->res > 0 ? cqe->res & kStatusMask : cqe->res;
        done.result = cqe->big_cqe[0];
        io_uring_cqe_seen(&ring_, cqe);
        ++answered;
      }
    }
  }

 private:
  void give(Command& command) {
    io_uring_sqe* const sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr) fail("no submission entry");
    auto* entry = reinterpret_cast<std::byte*>(sqe);
    std::memset(entry, 0, 128);
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = fd_;
    sqe->cmd_op = NVME_URING_CMD_IO;
    nvme_uring_cmd nvme{};
    nvme.opcode = command.opcode;
    nvme.nsid = nsid_;
    nvme.addr = reinterpret_cast<std::uintptr_t>(command.data);
    nvme.data_len = command.bytes;
    std::uint32_t words[4];
    std::memcpy(words, command.key.data(), sizeof words);
    nvme.cdw2 = words[0];
    nvme.cdw3 = words[1];
    nvme.cdw14 = words[2];
    nvme.cdw15 = words[3];
    nvme.cdw10 = command.bytes;
    nvme.cdw11 = command.key_bytes;
    std::memcpy(entry + offsetof(io_uring_sqe, cmd), &nvme, sizeof nvme);
    io_uring_sqe_set_data(sqe, &command);
  }

  const std::uint32_t nsid_;
  const int fd_;
  io_uring ring_{};
};

Command keyed(std::uint8_t opcode, unsigned number) {
  Command command;
  command.opcode = opcode;
  const std::string key = "key " + std::to_string(number * 7919);
  std::memcpy(command.key.data(), key.data(), key.size());
  command.key_bytes = static_cast<std::uint8_t>(key.size());
  return command;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: kv_passthrough DEVICE NSID");
  Device device(argv[1], static_cast<std::uint32_t>(std::atoi(argv[2])));
  std::mt19937_64 random(20261124);
  std::vector<std::vector<std::uint8_t>> pages(kKeys);
  for (auto& page : pages) {
    page.resize(1 + random() % (random() % 8 == 0 ? kBytesMax : 8192));
    for (std::uint8_t& byte : page) byte = static_cast<std::uint8_t>(random());
  }
  // One command of each key, and what is to be so of each answer.
  const auto each = [&](std::uint8_t opcode, const std::function<void(Command&, unsigned)>& fill,
                        const std::function<bool(const Command&, unsigned)>& right) {
    std::vector<Command> commands;
    for (unsigned i = 0; i < kKeys; ++i) {
      commands.push_back(keyed(opcode, i));
      fill(commands.back(), i);
    }
    device.run(commands);
    for (unsigned i = 0; i < kKeys; ++i) {
      if (right(commands[i], i)) continue;
      fail("opcode " + std::to_string(opcode) + " of key " + std::to_string(i) + ": status " +
           std::to_string(commands[i].status) + ", result " + std::to_string(commands[i].result));
    }
  };
  const auto nothing = [](Command&, unsigned) {};
  const auto there = [](const Command& done, unsigned) { return done.status == 0; };
  const auto absent = [](const Command& done, unsigned) { return done.status == kKeyDoesNotExist; };

  each(kExist, nothing, absent);
  each(
      kStore,
      [&](Command& command, unsigned i) {
        command.data = pages[i].data();
        command.bytes = static_cast<std::uint32_t>(pages[i].size());
      },
      there);
  each(kExist, nothing, there);
  // Into more memory than the page has; the answer says how long it is.
  std::vector<std::vector<std::uint8_t>> got(kKeys);
  each(
      kRetrieve,
      [&](Command& command, unsigned i) {
        got[i].resize(pages[i].size() + 100);
        command.data = got[i].data();
        command.bytes = static_cast<std::uint32_t>(got[i].size());
      },
      [&](const Command& done, unsigned i) {
        return done.status == 0 && static_cast<std::uint32_t>(done.result) == pages[i].size() &&
               std::memcmp(got[i].data(), pages[i].data(), pages[i].size()) == 0;
      });
  std::vector<std::uint8_t> list(64 << 10);
  std::vector<Command> listing(1);
  listing[0].opcode = kList;
  listing[0].data = list.data();
  listing[0].bytes = static_cast<std::uint32_t>(list.size());
  device.run(listing);
  std::uint32_t listed = 0;
  std::memcpy(&listed, list.data(), sizeof listed);
  if (listing[0].status != 0 || le32toh(listed) != kKeys) {
    fail("the list has " + std::to_string(le32toh(listed)) + " keys");
  }
  each(kDelete, nothing, there);
  each(kExist, nothing, absent);
  std::printf("%u pages stored, found, listed, retrieved whole and deleted, %u in flight\n", kKeys,
              kDepth);
  return 0;
}

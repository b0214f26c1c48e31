// PageOp: one operation on a page store, local (PageSession::submit) or remote
// (Initiator::submit). Intrusive: the caller owns it; it stays in place from submit until
// on_released. Nothing is allocated for it.
#pragma once

#include <array>
#include <cstdint>

#include "log/key.h"
#include "log/key_op.h"
#include "log/page_log.h"
#include "zone/executor.h"
#include "zone/io.h"
#include "zone/status.h"

namespace furrow {

class PageStore;

enum class Durability : std::uint8_t {
  none,     // acknowledged when the device has it: survives a process kill
  flushed,  // acknowledged when it would survive a power cut
};

struct PageOp {
  enum class Kind : std::uint8_t {
    get,
    get_range,  // a part of a page that is known; only of a pool in this process
    put,
    remove,
    exist,
    list,
    flush,
    remove_group,
    pin,  // or unpin; io_error also where an opening could not read what may be a newer version
    unpin,
  };
  enum class Condition : std::uint8_t { always, if_absent, if_exists };

  Kind kind = Kind::get;
  Condition condition = Condition::always;   // put
  Durability durability = Durability::none;  // put, remove, remove_group
  // put: store it pinned: a cache never evicts it, but it goes when its time to live has passed,
  // its group is removed, or it is. Pinned pages take half of a cache's quota at most, then
  // no_space. A store evicts nothing anyway. pin and unpin write the page again.
  bool pinned = false;
  // put, of a pool in this process: what is there loses something, so that something can be
  // deleted. One that is no longer than that is taken as a remove is, also while the file system
  // under the device is full.
  bool shrinks = false;
  // exist, of a pool in this process, without `known`: pinned, group and ttl_s are results as well.
  bool whole_record = false;
  Key key;  // list: where to start; length 0: the beginning
  // What a put does not say again its key does not have any more: pinned, group, ttl_s.
  std::uint64_t group = 0;  // put: 0 is no group; remove_group: which, not 0; ok also without pages
  std::uint32_t ttl_s = 0;  // put: seconds to live, by the system's clock; 0: for ever
  // (Media count seconds in 32 bits: who would live beyond 7 February 2106 lives until then.)

  // How long its caller waits for the result, from submit() on; 0: for as long as it takes. Then
  // on_result comes with `late` (and the data may still be written to). The operation goes on, and
  // its end is on_released, with the status that it had then: a put may have been done or not. What
  // has not been sent to a server by then is not sent any more. Calls that block
  // (SyncPageStore::run()) return at the end.
  std::uint32_t within_us = 0;

  // The page. put: `length` bytes are stored (1 byte .. the volume's limit). get: at most
  // `capacity` bytes are read; `length` returns the value's true length, which may be larger.
  // So does exist, of a pool in this process. `capacity` is what may be touched behind `data`. When
  // `data` is aligned to the device's LBA and capacity >= length rounded up to LBAs, the device
  // reads or writes this memory itself (a put then zeroes data[length .. rounded up)); otherwise
  // the bytes are copied once.
  std::byte* data = nullptr;
  std::uint32_t length = 0;
  std::uint32_t capacity = 0;
  std::int32_t buffer_index = -1;  // as registered with the session; -1: none

  // get_range: the bytes from `offset` on that are wanted, of the page that `known` says. They are
  // verified by the page's checksum when they are in all of its LBAs, or the volume has copies of
  // pages that were damaged. not_found: no such page is there.
  std::uint32_t offset = 0;
  std::uint32_t wanted = 0;

  // put, remove, exist, get_range: what stands under the key, where the caller knows it, so
  // that no batch header has to be read to find out. What is not there by then put and remove find
  // by them all the same; exist and get_range are of that very page. remove_group: the pages of the
  // group, all of them, `known_count`; none: they are found.
  const KnownPage* known = nullptr;
  std::size_t known_count = 0;
  // remove_group: no page of another group, or of none, took the place of one of this group. Else
  // the deletion waits until what has gone to zones of other lifetimes is durable.
  // What is put after it with a medium lifetime is not durable before it.
  bool own_keys = false;
  // put: with what it is expected to go; one with a ttl_s is a short one. A hint: a store that has
  // no zones to spare for that, or no open zone of the device's, keeps them together, and so does a
  // cache.
  Lifetime lifetime = Lifetime::medium_term;
  std::uint32_t checksum = 0;  // result of put, get and exist: the page's, as in a KnownPage

  // list: up to keys_max keys are written to `keys`; keys_count says how many. In listing order: a
  // keyed hash of the key (ARCHITECTURE.md); resume with the last key got, which is not repeated.
  Key* keys = nullptr;
  std::uint32_t keys_max = 0;
  std::uint32_t keys_count = 0;

  // Results. Codes: not_found, exists, no_space, corrupt (the page is damaged and was not served),
  // invalid_argument (a key or value of a wrong size), too_large (a value over the volume's limit),
  // permission (the pool was opened for reading alone), io_error, aborted, late (within_us); from a
  // server what Initiator::submit() says, too.
  Status status;
  // Both are called on the thread that submitted: first on_result (status and results are final,
  // but for `late`), then on_released (this op and its data are the caller's again). on_released
  // may be null where there is no within_us.
  void (*on_result)(PageOp&) = nullptr;
  void (*on_released)(PageOp&) = nullptr;
  void* context = nullptr;  // the caller's

  // From here on: the engine's (or the initiator's), while submitted.
  struct Internal {
    Task task;  // must be first: a Task& is an Internal&
    PageOp* self = nullptr;
    PageStore* store = nullptr;
    Executor* reply_to = nullptr;  // where it was submitted
    PageOp* next = nullptr;
    Status status;  // as far as it has got
    struct Deadline : Timer {
      bool passed = false;
      PageOp* op = nullptr;
    } deadline;
    Io io;
    KeyHash hash;
    AlignedBuffer* bounce = nullptr;  // of a get whose memory the device cannot fill itself
    unsigned epoch_side = 0;
    unsigned candidate = 0, candidate_count = 0;
    bool mismatch = false;
    std::uint64_t diagnosed_lba = 0;  // where home last said that the page of a get is
    std::uint64_t state[4]{};
    void* scratch[2]{};
    KeyOp key_op;
    ListOp list_op;
    RemoveGroupOp group_op;
    FlushOp flush_op;
  } internal;
};

}  // namespace furrow

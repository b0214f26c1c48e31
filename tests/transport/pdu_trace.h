// Decodes a stream into a list of events, cut into pieces in any way, landing data either by copy
// or by "reading" straight into its destination. Shared by the codec's tests and its fuzz target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "transport/pdu.h"

namespace furrow::transport {

struct PduTrace {
  struct Entry {
    PduDecoder::Event event{};
    std::vector<std::byte> header;  // of a header event
    std::vector<std::byte> data;    // of an end event
    bool intact = true;
    PduError error;
    friend bool operator==(const Entry& a, const Entry& b) {
      return a.event == b.event && a.header == b.header && a.data == b.data &&
             a.intact == b.intact && a.error.fes == b.error.fes &&
             a.error.information == b.error.information;
    }
  };
  std::vector<Entry> entries;
  friend bool operator==(const PduTrace&, const PduTrace&) = default;
};

// `piece(left)`: how many of the `left` bytes the next read returns (1..left). `direct()`: is the
// next read made straight into the destination, as far as there is one?
inline PduTrace trace_pdus(PduDecoder& decoder, std::span<const std::byte> stream,
                           const std::function<std::size_t(std::size_t)>& piece,
                           const std::function<bool()>& direct) {
  using Event = PduDecoder::Event;
  PduTrace trace;
  std::vector<std::byte> data;
  while (true) {
    std::size_t count = stream.empty() ? 0 : piece(stream.size());
    if (direct() && !decoder.landing().empty()) {
      const std::size_t landed = std::min(count, decoder.landing().size());
      if (landed != 0) std::memcpy(decoder.landing().data(), stream.data(), landed);
      decoder.landed(landed);
      stream = stream.subspan(landed);
      count -= landed;
    }
    std::span<const std::byte> input = stream.first(count);
    stream = stream.subspan(count);
    Event event;
    while ((event = decoder.next(input)) != Event::none) {
      PduTrace::Entry entry{event, {}, {}, true, {}};
      if (event == Event::header) {
        const auto header = std::as_bytes(std::span(&decoder.header<IcReq>(), 1))
                                .first(decoder.header<PduCommon>().hlen);
        entry.header.assign(header.begin(), header.end());
        data.assign(decoder.data_bytes(), std::byte{0xEE});
        if (!data.empty()) decoder.set_destination(data.data());
      } else if (event == Event::end) {
        entry.data = data;
        entry.intact = decoder.data_intact();
      } else {
        entry.error = decoder.error();
      }
      trace.entries.push_back(std::move(entry));
      if (event == Event::error) return trace;
    }
    if (stream.empty()) return trace;
  }
}

}  // namespace furrow::transport

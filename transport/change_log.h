// ChangeLog: what has changed since a host read of it last, for a log page that may be read in
// pieces: these are all of the page as its first one told it. What changes after that is for the
// next time, and is not taken for read with the rest.
#pragma once

#include <cstddef>
#include <set>

namespace furrow::transport {

template <class T>
class ChangeLog {
 public:
  void add(const T& what) { since_.insert(what); }
  std::size_t size() const { return since_.size(); }  // that no page has told yet
  // `begins`: it is the page's first piece, or all of it.
  const std::set<T>& page(bool begins) {
    if (begins || page_.empty()) {
      page_.merge(since_);
      since_.clear();
    }
    return page_;
  }
  // The host has read it. What is left no page has told.
  void acknowledge() { page_.clear(); }
  bool empty() const { return page_.empty() && since_.empty(); }

 private:
  std::set<T> page_, since_;
};

}  // namespace furrow::transport

// NoThreads: while it lives the process gets no more threads, as where a container has as many as
// it may: the memory that one would take is more than there can be.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>

namespace furrow::test {

class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t impossible;
    EXPECT_EQ(pthread_getattr_default_np(&usual_), 0);
    EXPECT_EQ(pthread_attr_init(&impossible), 0);
    EXPECT_EQ(pthread_attr_setstacksize(&impossible, std::size_t{1} << 46), 0);
    EXPECT_EQ(pthread_setattr_default_np(&impossible), 0);
    pthread_attr_destroy(&impossible);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&usual_);
    pthread_attr_destroy(&usual_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_{};
};

}  // namespace furrow::test

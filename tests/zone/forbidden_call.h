// forbid_call(): from now on this thread's calls of one kind fail, as under a seccomp profile.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>
#include <iterator>

namespace furrow {

// `number`: __NR_..., `error`: an errno; `second`: not all of them, but those whose second argument
// is this. Cannot be undone: for a child process, or a thread.
[[nodiscard]] inline bool forbid_call(unsigned number, unsigned error, int second = -1) {
  constexpr unsigned kWord = BPF_LD | BPF_W | BPF_ABS, kEqual = BPF_JMP | BPF_JEQ | BPF_K;
  const unsigned looked_at =
      second < 0 ? offsetof(seccomp_data, nr) : offsetof(seccomp_data, args) + 8;
  const unsigned wanted = second < 0 ? number : static_cast<unsigned>(second);
  sock_filter rules[] = {
      BPF_STMT(kWord, offsetof(seccomp_data, nr)),
      BPF_JUMP(kEqual, number, 0, 3),
      BPF_STMT(kWord, looked_at),
      BPF_JUMP(kEqual, wanted, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace furrow

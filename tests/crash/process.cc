#include "tests/crash/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace furrow::crash {

namespace {

// Between fork and exec: system calls only.
[[noreturn]] void become(char* const* command, const Process::Options& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);  // Ctrl-C is for the parent, which lets the round come to its end
  const int fd = open(options.output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0) _exit(126);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = std::min<rlim_t>(options.file_bytes_max, limit.rlim_max);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
  ::signal(SIGXFSZ, SIG_IGN);  // an error, as on a disk that is full, and not a signal
  execv(command[0], command);
  _exit(127);
}

}  // namespace

std::string Ended::describe() const {
  return killed ? fmt::format("was ended by signal {}", code)
                : fmt::format("ended with status {}", code);
}

Process::Process(const std::vector<std::string>& command, const Options& options) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  unlink(options.output.c_str());  // what an earlier child said is not this one's
  pid_ = fork();
  if (pid_ == 0) become(words.data(), options);
  if (pid_ < 0) {
    fmt::print(stderr, "furrow-crash: cannot fork\n");
    std::exit(2);
  }
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(reaped_, other.reaped_);
  std::swap(ended_, other.ended_);
  return *this;
}

bool Process::reap(bool block) {
  if (pid_ <= 0 || reaped_) return true;
  int status = 0;
  if (waitpid(pid_, &status, block ? 0 : WNOHANG) != pid_) return false;
  reaped_ = true;
  ended_.killed = WIFSIGNALED(status);
  ended_.code = ended_.killed ? WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

bool Process::running() { return pid_ > 0 && !reap(false); }

void Process::signal(int number) const {
  if (pid_ > 0 && !reaped_) kill(pid_, number);
}

Ended Process::wait(unsigned limit_s) {
  const auto end_at = std::chrono::steady_clock::now() + std::chrono::seconds(limit_s);
  while (!reap(false)) {
    if (std::chrono::steady_clock::now() > end_at) return end();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ended_;
}

Ended Process::end() {
  signal(SIGKILL);
  reap(true);
  return ended_;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace furrow::crash

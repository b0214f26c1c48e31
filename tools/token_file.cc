#include "tools/token_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

namespace furrow::tools {

Result<std::string> read_token(const std::string& path) {
  constexpr std::size_t kMin = 16, kMax = 256;
  struct stat facts;
  if (stat(path.c_str(), &facts) != 0) {
    return Status(errno == ENOENT ? Code::not_found : Code::io_error, Origin::tool, "", errno);
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(Code::permission, Origin::tool,
                  "others than its owner may use the token in it; chmod 600 it");
  }
  std::ifstream file(path);
  std::string token;
  if (!std::getline(file, token) && !file.eof()) {
    return Status(Code::io_error, Origin::tool, "cannot be read");
  }
  const bool printable = std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (token.size() < kMin || token.size() > kMax || !printable) {
    return Status(Code::invalid_argument, Origin::tool,
                  "its first line must be a token of 16 to 256 characters without spaces, as "
                  "`openssl rand -hex 32` makes");
  }
  return token;
}

}  // namespace furrow::tools

// Uses a server's page store: keeps one page and reads it back. usage: remote HOST PORT
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

#include "transport/sync_initiator.h"

int main(int argc, char** argv) {
  if (argc != 3) return std::puts("usage: remote HOST PORT"), 2;
  furrow::transport::InitiatorOptions options;
  options.host = argv[1];
  options.port = static_cast<std::uint16_t>(std::atoi(argv[2]));
  const auto pages = furrow::transport::SyncInitiator::connect(options);
  if (!pages) return std::puts(pages.status().describe().c_str()), 1;
  const std::string_view text = "kept in zones";
  const auto stored = (*pages)->put(furrow::Key::from("note"), std::as_bytes(std::span(text)));
  if (!stored.ok()) return std::puts(stored.describe().c_str()), 1;
  const auto page = (*pages)->get(furrow::Key::from("note"));
  if (!page) return std::puts(page.status().describe().c_str()), 1;
  std::fwrite(page->data(), 1, page->size(), stdout);
  std::puts("");
}

// Keeps a RocksDB database on zones: puts one value and gets it back. usage: database URI
#include <rocksdb/db.h>

#include <cstdio>

#include "engine/rocksdb/file_system.h"

int main(int argc, char** argv) {
  if (argc != 2) return std::puts("usage: database furrow://DEVICE-URI"), 2;
  std::unique_ptr<rocksdb::FileSystem> files;
  rocksdb::Status status = furrow::open_file_system(argv[1], &files);
  if (!status.ok()) return std::puts(status.ToString().c_str()), 1;
  const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(std::move(files));
  rocksdb::Options options;
  options.env = env.get();
  options.create_if_missing = true;
  rocksdb::DB* opened = nullptr;
  status = rocksdb::DB::Open(options, "/db", &opened);
  if (!status.ok()) return std::puts(status.ToString().c_str()), 1;
  const std::unique_ptr<rocksdb::DB> db(opened);
  std::string value;
  status = db->Put(rocksdb::WriteOptions(), "note", "kept in zones");
  if (status.ok()) status = db->Get(rocksdb::ReadOptions(), "note", &value);
  if (!status.ok()) return std::puts(status.ToString().c_str()), 1;
  std::puts(value.c_str());
}

# shellcheck shell=bash
# What the end-to-end tests share: a work folder, furrowd and how to end it, expectations. To be
# sourced by a test that is called with the folder of the built programs. Everything listens on
# loopback, on ports that the kernel chose.
set -euo pipefail
export PATH="$1/tools:$1/bench:$PATH"
work=$(mktemp -d "${FURROW_TEST_POOLS:-${TMPDIR:-/var/tmp}}/furrow-e2e.XXXXXX")
scale=${FURROW_TEST_TIMEOUT_SCALE:-1}
daemons=()
mounts=()

clean_up() {
  local status=$?
  local pid mount
  for pid in "${daemons[@]}"; do
    kill -9 "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    for log in "$work"/*.log; do [ -s "$log" ] && { echo "--- $log"; tail -n 20 "$log"; }; done
  fi
  for mount in "${mounts[@]}"; do umount -l "$mount"; done
  rm -rf "$work"
}
trap clean_up EXIT

fail() { echo "FAILED (line ${BASH_LINENO[1]}): $*"; exit 1; }

# start_furrowd FLAG...: sets daemon (its pid), port and admin (its ports), nqn.
start_furrowd() {
  : >"$work/ready"
  furrowd --listen=127.0.0.1:0 --admin=127.0.0.1:0 "$@" >"$work/ready" 2>"$work/furrowd.log" &
  daemon=$!
  daemons+=("$daemon")
  local i
  for ((i = 0; i < 300 * scale; ++i)); do
    grep -q ready "$work/ready" && break
    kill -0 "$daemon" 2>/dev/null || fail "furrowd $* ended: $(cat "$work/furrowd.log")"
    sleep 0.1
  done
  port=$(sed -nE 's/.*listen=[^ ]*:([0-9]+).*/\1/p' "$work/ready")
  admin=$(sed -nE 's/.*admin=[^ ]*:([0-9]+).*/\1/p' "$work/ready")
  nqn=$(sed -nE 's/.*nqn=([^ ]*).*/\1/p' "$work/ready")
  [ -n "$port" ] && [ -n "$admin" ] && [ -n "$nqn" ] || fail "not ready: $(cat "$work/ready")"
}

# A free port that the kernel gives to nobody who asks for any: a server that was killed finds it
# free again.
port_to_keep() {
  local low candidate i
  read -r low _ </proc/sys/net/ipv4/ip_local_port_range
  [ "$low" -gt 2048 ] || fail "the kernel gives out all ports from $low on"
  for ((i = 0; i < 100; ++i)); do
    candidate=$((1024 + (RANDOM * 32768 + RANDOM) % (low - 1024)))
    (exec 3<>"/dev/tcp/127.0.0.1/$candidate") 2>/dev/null || { echo "$candidate"; return; }
  done
  fail "no port below $low is free"
}

# Ends furrowd in order and expects exit status 0.
stop_furrowd() {
  local status=0
  kill -TERM "$daemon"
  wait "$daemon" || status=$?
  [ $status -eq 0 ] || fail "furrowd ended with status $status: $(cat "$work/furrowd.log")"
}

kill_furrowd() {
  kill -9 "$daemon"
  wait "$daemon" 2>/dev/null || true
}

# expect STATUS TEXT COMMAND...: the exit status, and the text (a regular expression) somewhere in
# what it says. COMMAND may be kv, below.
expect() {
  local status=0 wanted=$1 text=$2
  shift 2
  [ "$1" != kv ] || set -- furrowctl kv "$2" --target="127.0.0.1:$port" "${@:3}"
  timeout $((60 * scale)) "$@" >"$work/said" 2>&1 || status=$?
  [ $status -eq "$wanted" ] || fail "'$*' ended with $status, not $wanted: $(cat "$work/said")"
  grep -qE -- "$text" "$work/said" || fail "'$*' does not say '$text' but: $(cat "$work/said")"
}

# kv VERB FLAG...: one operation on the running server.
kv() { timeout $((60 * scale)) furrowctl kv "$1" --target="127.0.0.1:$port" "${@:2}"; }

metric() {
  curl -sS --max-time 10 "http://127.0.0.1:$admin/metrics" |
    awk -v name="$1" '$1 ~ "^" name "([{]|$)" { sum += $NF } END { printf "%d\n", sum }'
}

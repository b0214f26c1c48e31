# shellcheck shell=bash
# What the tests of zoned namespaces share: the guest as a host of the one with NSID 2. To be sourced
# after tests/e2e/lib.sh.

connect() { # and sets controller, disk and generic
  nvme connect -t tcp -a 127.0.0.1 -s "$port" -n "$nqn" -i 2 --reconnect-delay=1 \
    --ctrl-loss-tmo=120 "$@"
  local path i
  controller=none disk='' generic=''
  for ((i = 0; i < 100 * scale; ++i)); do
    for path in /sys/class/nvme/nvme*; do
      [ "$(cat "$path/transport")" = tcp ] || continue
      controller=${path##*/}
    done
    for path in /sys/block/"$controller"n*; do
      [ "$(cat "$path/nsid" 2>/dev/null)" != 2 ] || disk=${path##*/}
    done
    [ -z "$disk" ] || [ "$(cat "/sys/block/$disk/size")" = 0 ] || break
    sleep 0.1
  done
  [ -n "$disk" ] || fail "no zoned block device: $(dmesg | tail -n 20)"
  generic=/dev/ng${disk#nvme}
  # Up to Linux 6.9 this keeps writes of a zone in order; newer ones do so by themselves.
  echo mq-deadline >"/sys/block/$disk/queue/scheduler"
}
disconnect() { nvme disconnect -n "$nqn" >"$work/disconnected"; }

queue() { cat "/sys/block/$disk/queue/$1"; } # ATTRIBUTE
is() { # ATTRIBUTE VALUE
  [ "$(queue "$1")" = "$2" ] || fail "$1 is $(queue "$1"), not $2"
}

# How many zones a report says are in a state.
count() { nvme zns report-zones "/dev/$disk" -o json | jq "[.zone_list[] | select(.state == \"$1\")] | length"; }
states() { # STATE NUMBER
  [ "$(count "$1")" = "$2" ] || fail "$(count "$1") zones are $1, not $2: $(nvme zns report-zones "/dev/$disk")"
}
# Where each zone is written to; a full one has no write pointer.
written() {
  nvme zns report-zones "/dev/$disk" -o json |
    jq -ce '[.zone_list[] | if .state == "FULL" then "full" else .wp - .slba end]'
}
# refused STATUS COMMAND...: with this NVMe status, which nvme-cli prints, and Do Not Retry.
refused() {
  local wanted=$1
  shift
  ! "$@" >"$work/said" 2>&1 || fail "'$*' was not refused"
  grep -qiE "\(0x(4)?$wanted\)" "$work/said" || fail "'$*' does not say $wanted but: $(cat "$work/said")"
}

run_fio() { # NAME OPTION...
  local name=$1
  shift
  timeout $((100 * scale)) fio --name="$name" --filename="/dev/$disk" --direct=1 \
    --ioengine=libaio --zonemode=zbd --verify=crc32c --verify_fatal=1 --randrepeat=1 "$@" \
    >"$work/fio" 2>&1 || fail "fio $name: $(cat "$work/fio"; dmesg | tail -n 20)"
}

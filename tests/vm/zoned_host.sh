# shellcheck shell=bash
# What the tests of zoned drives and namespaces share: their scheduler, and the guest as a host of the
# namespace with NSID 2. To be sourced after tests/e2e/lib.sh.

# With multipath it is the paths that have a scheduler: nvme0c0n1 of nvme0n1.
use_scheduler() { # NAME SCHEDULER
  local queue
  for queue in /sys/block/"$1"/queue/scheduler /sys/block/"${1%n*}"c*n"${1##*n}"/queue/scheduler; do
    [ ! -e "$queue" ] || echo "$2" >"$queue"
  done
}
# Up to Linux 6.9 this keeps the writes of a zone in order; newer ones do so by themselves.
use_mq_deadline() { use_scheduler "$1" mq-deadline; } # NAME

multipath() { [ "$(cat /sys/module/nvme_core/parameters/multipath)" = Y ]; }

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
  use_mq_deadline "$disk"
}
disconnect() { nvme disconnect -n "$nqn" >"$work/disconnected"; }

# With multipath Linux 6.1 shows limits of zones only of the paths.
queue() { # ATTRIBUTE
  local of=/sys/block/$disk path
  for path in /sys/block/"${disk%n*}"c*n"${disk##*n}"; do
    case $1 in max_*_zones) [ ! -e "$path" ] || of=$path ;; esac
  done
  cat "$of/queue/$1"
}
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

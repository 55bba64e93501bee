#!/usr/bin/env bash
# Sets up what a target needs, says what it does, and may be run again: `setup.sh system`, `setup.sh cluster`,
# `setup.sh venv DIR`, `setup.sh web`, `setup.sh browser`.
set -euo pipefail

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# program or file that must be found -> Debian package that brings it
PACKAGES="
qemu-system-x86_64:qemu-system-x86
qemu-img:qemu-utils
nft:nftables
ip:iproute2
/usr/share/OVMF/OVMF_CODE_4M.fd:ovmf
swtpm:swtpm
gcc:gcc
ld:binutils
depmod:kmod
skopeo:skopeo
mmdebstrap:mmdebstrap
pkg-config:pkg-config
virsh:libvirt-clients
libvirtd:libvirt-daemon
/usr/include/libvirt/libvirt.h:libvirt-dev
/usr/share/doc/libvirt-daemon-driver-qemu:libvirt-daemon-driver-qemu
linux.uml:user-mode-linux
"

# for the nodes of a test cluster
CLUSTER_PACKAGES="
runc:runc
conntrack:conntrack
iptables:iptables
mmdebstrap:mmdebstrap
"

export PATH="$PATH:/usr/sbin:/sbin"

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "root is needed to run: $*"; fi
}

install_packages() {
  command -v apt-get >/dev/null || fail "not a Debian machine: install by hand what brings: $*"
  say "installing Debian packages: $*"
  local log
  log=$(mktemp)
  if ! { as_root apt-get update -q && DEBIAN_FRONTEND=noninteractive as_root apt-get install -y -q --no-install-recommends "$@"; } >"$log" 2>&1
  then
    tail -n 20 "$log" >&2
    fail "apt-get could not install: $* (see above)"
  fi
  rm -f "$log"
}

system() {
  local missing=() pair
  for pair in $PACKAGES; do
    command -v "${pair%%:*}" >/dev/null || [ -e "${pair%%:*}" ] || missing+=("${pair##*:}")
  done
  # The guests' kernel is taken out of its package without installing it; apt must know the package for that.
  if ! ls /boot/vmlinuz-*-cloud-amd64 .cache/guests/linux.kernel >/dev/null 2>&1 &&
    ! apt-cache show linux-image-cloud-amd64 >/dev/null 2>&1; then
    say "reading the list of Debian packages"
    as_root apt-get update -q >/dev/null || fail "apt-get update failed: check the machine's package settings"
  fi
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

cluster() {
  local missing=() pair
  for pair in $CLUSTER_PACKAGES; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair##*:}")
  done
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
}

python_program() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] || continue
    "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$candidate"; return; }
  done
  return 1
}

venv() {
  local dir=$1 python
  python_program >/dev/null || install_packages python3 python3-venv
  python=$(python_program) || fail "Python 3.11 or newer is needed: install it, or name it with PYTHON="
  "$python" -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
  if [ ! -x "$dir/bin/pip" ]; then
    say "making the Python environment $dir"
    "$python" -m venv "$dir"
  fi
  say "installing the locked Python packages (a few minutes at first)"
  "$dir/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements.lock ||
    fail "pip could not install the locked packages (see above)"
  if pkg-config --exists libvirt 2>/dev/null; then
    "$dir/bin/pip" install -q --disable-pip-version-check --require-hashes -r requirements-libvirt.lock ||
      fail "pip could not build the libvirt binding (see above)"
  else
    say "without the libvirt driver's binding: Debian's libvirt-dev and pkg-config are not installed"
  fi
  "$dir/bin/pip" install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
  say "ready: $dir/bin/anyvisor"
}

# The web console's terminal and viewer, as locked, into the folder that is served. Not committed.
web() {
  local source=src/anyvisor/web target=src/anyvisor/web/vendor build=.cache/web
  if ! command -v npm >/dev/null; then
    say "without the web console's terminal and viewer: npm is not installed (Debian: apt-get install npm)"
    return
  fi
  [ "$target/novnc/core/rfb.js" -nt "$source/package-lock.json" ] && return
  say "fetching the web console's terminal and viewer"
  mkdir -p "$build"
  cp "$source/package.json" "$source/package-lock.json" "$build/"
  (cd "$build" && npm ci --ignore-scripts --no-audit --no-fund --silent) ||
    { say "npm could not fetch them; the console goes without"; return; }
  rm -rf "$target"
  mkdir -p "$target/novnc"
  cp "$build/node_modules/@xterm/xterm/lib/xterm.mjs" "$build/node_modules/@xterm/xterm/css/xterm.css" \
    "$build/node_modules/@xterm/addon-fit/lib/addon-fit.mjs" "$target/"
  cp -r "$build/node_modules/@novnc/novnc/core" "$build/node_modules/@novnc/novnc/vendor" "$target/novnc/"
  find "$target" -type f -exec touch {} +
}

# A browser for the test of the web console; that is skipped without.
browser() {
  command -v chromium >/dev/null || ! command -v apt-get >/dev/null || (install_packages chromium) ||
    say "without a browser: the web console is not tried"
}

case "${1:-}" in
  web) web ;;
  browser) browser ;;
  system) system ;;
  cluster) cluster ;;
  venv) venv "${2:?the environment\'s directory}" ;;
  *) fail "usage: setup.sh system | cluster | venv DIR | web | browser" ;;
esac

# shellcheck shell=sh disable=SC2034 # some variables are for the scripts that read this
# What the scripts here and ../x share; read by them (`. tools.sh`). No work is done on reading.
#
# LLVM_ROOT and MINGW_ROOT, when set, name other places than Debian's.
llvm=${LLVM_ROOT:-/usr/lib/llvm-19}
mingw=${MINGW_ROOT:-/usr/x86_64-w64-mingw32}
oldest_rust=1.95 # rust-version in Cargo.toml
locked=${CI:+--locked} # only CI insists on Cargo.lock; elsewhere cargo brings it up to date, as it always does

# A progress line.
say() {
    printf '%s: %s\n' "${speaker:-${0##*/}}" "$*" >&2
}

# The one way out when something is missing or cannot be written: one sentence, exit 2.
fail() {
    say "$*"
    exit 2
}

# Makes the folder, and makes sure that files can be made in it.
writable() {
    { mkdir -p "$1" && probe=$(mktemp "$1/.writable.XXXXXX"); } 2>/dev/null || fail "cannot write to $1"
    rm -f "$probe"
}

# Whether anything in these files and folders is newer than the file. Only says whether to print a progress line: what has to
# be built, cargo decides.
changed_since() { # file path...
    reference=$1
    shift
    [ -n "$(find "$@" -type f -newer "$reference" 2>&1 | head -n 1)" ]
}

# Where cargo keeps what it downloads.
cargo_home() {
    echo "${CARGO_HOME:-${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}/.cargo}"
}

# The Debian packages that programs of this machine need to be built and are not there, on one line; rustc and cargo aside.
missing_host_tools() {
    packages=''
    command -v cc >/dev/null || packages="$packages gcc libc6-dev"
    [ -e "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ] || packages="$packages ca-certificates"
    echo "${packages# }"
}

# The same for the images; rustc and cargo aside, see find_image_toolchain.
missing_image_tools() {
    packages=$(missing_host_tools)
    [ -x "$llvm/bin/lld-link" ] || packages="$packages lld-19"
    { [ -x "$llvm/bin/llvm-dlltool" ] && [ -x "$llvm/bin/llvm-ar" ]; } || packages="$packages llvm-19"
    set -- "$llvm"/lib/libclang*.so*
    [ -e "$1" ] || packages="$packages libclang1-19"
    [ -d "$llvm/lib/clang" ] || packages="$packages libclang-common-19-dev"
    [ -f "$mingw/include/ddk/wdm.h" ] || packages="$packages mingw-w64-x86-64-dev"
    echo "${packages# }"
}

# The same for drivers in C.
missing_c_tools() {
    packages=$(missing_host_tools)
    [ -x "$llvm/bin/clang" ] || packages="$packages clang-19"
    [ -x "$llvm/bin/lld-link" ] || packages="$packages lld-19"
    [ -f "$mingw/include/ddk/wdm.h" ] || packages="$packages mingw-w64-x86-64-dev"
    echo "${packages# }"
}

# The same for signing packages.
missing_signing_tools() {
    packages=''
    command -v osslsigncode >/dev/null || packages="$packages osslsigncode"
    command -v openssl >/dev/null || packages="$packages openssl"
    echo "${packages# }"
}

# The same for tests: they sign, compile C, ask QEMU for its own device, open dumps in a debugger, and have Wine read
# the INFs.
missing_test_tools() {
    packages=$(missing_signing_tools)
    command -v qemu-system-x86_64 >/dev/null || packages="$packages qemu-system-x86"
    command -v lldb-19 >/dev/null || packages="$packages lldb-19 python3-lldb-19"
    [ -x "$llvm/bin/clang" ] || packages="$packages clang-19"
    packages="$packages $(missing_wine_tools)"
    packages=${packages% }
    echo "${packages# }"
}

# The same for running the driver under Wine.
missing_wine_tools() {
    command -v wine >/dev/null || echo "wine wine64"
}

# Whether this rustc is new enough.
new_enough() {
    version=$("$1" --version 2>/dev/null) || return 1
    version=${version#rustc } version=${version%% *}
    [ "$(printf '%s\n' "$oldest_rust" "$version" | sort -V | head -n 1)" = "$oldest_rust" ]
}

# Whether the library sources of this rustc are there, to build core and alloc from.
has_library_sources() {
    [ -f "$("$1" --print sysroot)/lib/rustlib/src/rust/library/core/src/lib.rs" ]
}

# Sets image_cargo, image_rustc and build_std to what images are built with: Debian's own toolchain with core and alloc built
# from its sources; or, where that is not there, the one on the PATH, if it has the target, or the library sources.
find_image_toolchain() {
    build_std="-Zbuild-std=core,alloc"
    image_cargo=/usr/bin/cargo image_rustc=/usr/bin/rustc
    if [ -x "$image_cargo" ] && new_enough "$image_rustc" && has_library_sources "$image_rustc"; then return 0; fi
    image_cargo=$(command -v cargo) && image_rustc=$(command -v rustc) && new_enough "$image_rustc" || return 1
    if [ -d "$("$image_rustc" --print target-libdir --target "$1" 2>/dev/null)" ]; then
        build_std=
        return 0
    fi
    has_library_sources "$image_rustc"
}

# Downloads what Cargo.lock names, unless that was done for this Cargo.lock. wdk-build asks cargo for the metadata of every
# crate in it, whatever the target, so all of them are wanted.
fetch_crates() { # cargo root
    fetched=$2/target/fetched
    lock="$(cksum < "$2/Cargo.lock") $(cargo_home)"
    [ "$(cat "$fetched" 2>/dev/null)" != "$lock" ] || return 0
    writable "$2/target"
    # shellcheck disable=SC2086 # $locked is a word or none
    answer=$(cd "$2" && "$1" fetch --quiet $locked 2>&1) || case $answer in
        *--locked*) fail "Cargo.lock does not fit the Cargo.toml files: run 'cargo check' and commit what it changes" ;;
        *) fail "cannot download the crates that Cargo.lock names (is there a network?): $(echo "$answer" | sed -n '$s/^ *//p')" ;;
        esac
    echo "$lock" > "$fetched"
}

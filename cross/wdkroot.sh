#!/bin/sh
# Makes a folder that wdk-build takes for an installed WDK, out of mingw-w64's headers, our own (headers/) and import
# libraries made here.
#
# usage: wdkroot.sh FOLDER
#
# FOLDER appears whole or not at all, and stays as it is while nothing it is made of has changed. Our headers keep their
# times, so a new import does not have the bindings generated again.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
facts=$here/../nt_model/facts/routines.tsv
root=${1:?usage: wdkroot.sh FOLDER}
# shellcheck source=cross/tools.sh
. "$here/tools.sh"

# What the folder is made of, as one line.
ingredients() {
    { cat "$here/wdkroot.sh" "$here/imports.txt" "$facts" "$here"/headers/*/*.h
      ls -l "$mingw/include/ddk/wdm.h" "$mingw/lib/libntoskrnl.a"
    } | cksum
}
made_of=$(ingredients)
[ "$(cat "$root/made-of" 2>/dev/null)" != "$made_of" ] || exit 0

new=$root.new
rm -rf "$new"
version=10.0.26100.0 # the WDK whose layout of folders this is
include=$new/Include/$version
mkdir -p "$include/km/crt" "$include/km/mingw" "$include/shared/mingw"

# Headers: every DDK header of mingw-w64, those of its others that the kernel headers include, and ours over them. Where
# ours replaces one, the original moves to mingw/, for ours to include.
ln -s "$mingw"/include/ddk/*.h "$include/km/"
for name in _mingw_mac _mingw_unicode basetsd basetyps bugcodes concurrencysal devpropdef dpfilter driverspecs evntprov \
    guiddef ktmtypes ntdef ntiologc ntstatus poppack pshpack1 pshpack16 pshpack2 pshpack4 pshpack8 sal sdkddkver \
    specstrings winapifamily; do
    ln -s "$mingw/include/$name.h" "$include/shared/"
done
for folder in km shared; do
    for ours in "$here/headers/$folder"/*.h; do
        name=${ours##*/}
        if [ -L "$include/$folder/$name" ]; then mv "$include/$folder/$name" "$include/$folder/mingw/"; fi
        cp -p "$ours" "$include/$folder/"
    done
done
cp -p "$here"/headers/crt/*.h "$include/km/crt/"

# mingw-w64 lays two kinds of structure out by lists of architectures that leave ARM64 out, where it is laid out as AMD64 is:
# IO_STACK_LOCATION and its like (packed to 4 there), and XSTATE_SAVE.
for name in wdm ntddk; do
    sed -e '/^typedef struct _XSTATE_SAVE/,/^}/s/defined(_AMD64_)/(defined(_AMD64_) || defined(_ARM64_))/' \
        -e 's/!defined(_AMD64_)/!defined(_AMD64_) \&\& !defined(_ARM64_)/' \
        "$mingw/include/ddk/$name.h" > "$include/km/mingw/$name.new"
    touch -r "$mingw/include/ddk/$name.h" "$include/km/mingw/$name.new"
    mv "$include/km/mingw/$name.new" "$include/km/mingw/$name.h"
done

# What a driver may import: what the fact table calls a routine of the kernel or HAL, if mingw-w64's list of their exports or
# imports.txt has it too. And the five that compilers call, which ntoskrnl exports and no DDK header declares.
work=$new/lists
mkdir "$work"
awk -F '\t' '($3 == "export" || $3 == "function") && ($4 == "nt" || $4 == "hal") { print $1 }' "$facts" | sort -u > "$work/known"
for name in ntoskrnl hal; do
    "$llvm/bin/llvm-nm" "$mingw/lib/lib$name.a" 2>/dev/null | sed -n 's/.* __imp_//p' | sort -u > "$work/mingw-$name"
done
sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/imports.txt" | sort -u > "$work/extra"
unknown=$(comm -23 "$work/extra" "$work/known" | tr '\n' ' ')
[ -z "$unknown" ] || fail "cross/imports.txt names what nt_model/facts/routines.tsv does not know: $unknown"
sort -u "$work/mingw-ntoskrnl" "$work/extra" | comm -12 - "$work/known" > "$work/ntoskrnl"
printf '%s\n' __chkstk memcmp memcpy memmove memset >> "$work/ntoskrnl"
comm -23 "$work/mingw-hal" "$work/mingw-ntoskrnl" | comm -12 - "$work/known" > "$work/hal"

for architecture in x64:i386:x86-64 ARM64:arm64; do
    lib=$new/Lib/$version/km/${architecture%%:*}
    mkdir -p "$lib"
    for library in ntoskrnl:ntoskrnl.exe hal:HAL.dll; do
        name=${library%:*}
        { echo "LIBRARY ${library#*:}"; echo EXPORTS; cat "$work/$name"; } > "$work/$name.def"
        "$llvm/bin/llvm-dlltool" -m "${architecture#*:}" -d "$work/$name.def" -l "$lib/$name.lib"
    done
    # The functions of event tracing that the user-mode driver's crate imports by this name: of the SDK's umbrella library
    # these five.
    um=$new/Lib/$version/um/${architecture%%:*}
    mkdir -p "$um"
    { echo LIBRARY api-ms-win-eventing-provider-l1-1-0.dll; echo EXPORTS
      printf '%s\n' EventActivityIdControl EventRegister EventSetInformation EventUnregister EventWriteTransfer
    } > "$work/eventing.def"
    "$llvm/bin/llvm-dlltool" -m "${architecture#*:}" -d "$work/eventing.def" -l "$um/OneCore_apiset.lib"
    # Linked into every driver by wdk-sys, with nothing in them for one in Rust: checks of C code built with /GS, WMI,
    # ARM64's runtime. And what the crate `tracelogging` names for a function that neither image calls.
    for name in km/BufferOverflowFastFailK km/wmilib km/arm64rt km/rpcrt4 um/rpcrt4; do
        "$llvm/bin/llvm-ar" rc "$new/Lib/$version/${name%/*}/${architecture%%:*}/${name#*/}.lib"
    done
done
rm -r "$work"
echo "$made_of" > "$new/made-of"
rm -rf "$root"
mv "$new" "$root"

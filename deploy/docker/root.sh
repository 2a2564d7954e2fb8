#!/bin/sh
# Makes the root of the image: root.sh BINARY MODELS FOLDER. The program, what it links, the C library's modules that it may
# load for ONNX Runtime (libstdc++), a user, and the models in the box.
set -eu
binary=$1 models=$2 root=$3
mkdir -p "$root/usr/bin" "$root/etc/parm" "$root/models" "$root/tmp" "$root/usr/share/doc/parm"
chmod 1777 "$root/tmp"
install -m 755 "$binary" "$root/usr/bin/parm"
# "name => /path (address)", and the loader alone: "/path (address)".
libraries=$(ldd "$binary" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*\) (.*/\1/p')
for library in $libraries $(find /usr/lib -name 'libstdc++.so.6' | head -n 1); do
    mkdir -p "$root$(dirname "$library")"
    install -m 755 "$(readlink -f "$library")" "$root$library"
done
printf 'parm:x:65532:65532:parm:/:/sbin/nologin\n' >"$root/etc/passwd"
printf 'parm:x:65532:\n' >"$root/etc/group"
# Without it the C library asks DNS before the hosts file.
printf 'hosts: files dns\n' >"$root/etc/nsswitch.conf"
cp -R "$models/." "$root/models/"
find "$root/models" -name '*.py' -delete
install -m 644 LICENSE-APACHE LICENSE-MIT "$root/usr/share/doc/parm/"

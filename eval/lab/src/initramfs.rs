// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's first file system: a static busybox, a few modules and a script that mounts the
//! host's files (read-only, under an overlay that a tmpfs takes the writes of) and hands over to
//! `terrace-lab guest-init`. A cpio archive in "newc" format; the kernel frees it when that is done.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Static busybox, of package `busybox-static`.
pub const BUSYBOX: &str = "/bin/busybox";

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// A cpio archive being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(data.len()).expect("no file of an initramfs has 4 GiB");
        let name_size = u32::try_from(name.len() + 1).expect("names are short");
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        let mut header = "070701".to_owned();
        for field in fields {
            write!(header, "{field:08x}").expect("a String takes all");
        }
        self.bytes.extend_from_slice(header.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

/// The script that runs as `/init`. `memory_node` is where the overlay's tmpfs takes its memory.
#[must_use]
pub fn script(modules: &[String], memory_node: usize) -> String {
    let list = modules.join(" ");
    format!(
        r#"#!/bin/busybox sh
# Written by terrace-lab. Any failure leaves a line on the console and powers off.
b=/bin/busybox
die() {{ $b echo "terrace-lab init: $*" > /dev/console; $b sleep 1; $b poweroff -f; }}
$b mount -t devtmpfs dev /dev || die "no devtmpfs"
$b mount -t proc proc /proc || die "no proc"
$b mount -t sysfs sys /sys || die "no sysfs"
for m in {list}; do $b insmod /modules/$m || die "cannot load $m"; done
o=trans=virtio,version=9p2000.L,cache=loose,msize=262144
$b mount -t 9p -o ro,$o host /host || die "cannot mount the host's files"
$b mount -t tmpfs -o mpol=prefer:{memory_node},mode=0755,size=50% cow /cow || die "no tmpfs"
$b mkdir /cow/up /cow/work
$b mount -t overlay -o lowerdir=/host,upperdir=/cow/up,workdir=/cow/work,xino=off root /root ||
  die "cannot mount the overlay"
$b mount -t tmpfs -o mpol=prefer:{memory_node},mode=0755 run /root/run || die "no tmpfs on /run"
$b mkdir /root/run/terrace-lab
$b mount -t 9p -o trans=virtio,version=9p2000.L,cache=none,msize=262144 lab /root/run/terrace-lab ||
  die "cannot mount the lab's directory"
for d in dev proc sys; do $b mount --move /$d /root/$d || die "cannot move /$d"; done
exec $b switch_root /root /run/terrace-lab/terrace-lab guest-init
die "cannot start guest-init"
"#
    )
}

/// Packs the archive.
///
/// # Errors
///
/// If busybox cannot be read.
pub fn pack(modules: &[(String, Vec<u8>)], memory_node: usize) -> io::Result<Vec<u8>> {
    let mut archive = Archive::default();
    for dir in [
        "bin", "dev", "proc", "sys", "host", "cow", "root", "modules",
    ] {
        archive.entry(dir, DIRECTORY, &[]);
    }
    archive.entry("bin/busybox", PROGRAM, &std::fs::read(Path::new(BUSYBOX))?);
    for (name, data) in modules {
        archive.entry(&format!("modules/{name}"), PROGRAM, data);
    }
    let names: Vec<String> = modules.iter().map(|(name, _)| name.clone()).collect();
    archive.entry("init", PROGRAM, script(&names, memory_node).as_bytes());
    Ok(archive.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newc_entries_are_aligned_and_ended() {
        let mut archive = Archive::default();
        archive.entry("a", PROGRAM, b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[54..62], b"00000005", "file size");
        assert_eq!(&bytes[94..102], b"00000002", "name size");
        assert_eq!(&bytes[110..112], b"a\0");
        assert_eq!(&bytes[112..117], b"12345");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.windows(11).any(|window| window == b"TRAILER!!!\0"));
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn script_loads_in_order_and_keeps_off_the_fast_node() {
        let text = script(&["netfs.ko".into(), "9p.ko".into()], 1);
        assert!(text.contains("for m in netfs.ko 9p.ko;"));
        assert_eq!(text.matches("mpol=prefer:1").count(), 2);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! Asking this machine for each fact.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use rustix::io::Errno;

use super::Answer;
use super::Fact;
use super::Verdict;
use super::bpf;
use super::btf::HINT_FAULT_FUNCTIONS;
use super::btf::KernelBtf;
use super::caps;
use super::caps::Capability;
use super::memory;
use super::namespace;
use crate::move_pages::PageStatus;
use crate::process;
use crate::settings::Setting;
use crate::topology::Override;
use crate::topology::Topology;

/// Mappings a process may have by default; transactions split mappings.
const MAX_MAP_COUNT_COMFORTABLE: u64 = 262_144;

const QEMU: &str = "qemu-system-x86_64";
const QEMU_LEAST: u32 = 10;
/// What `scripts/setup` installs, by one program of each package.
const LAB_TOOLS: [&str; 12] = [
    "gcc",
    "ld",
    "pkg-config",
    "cpio",
    "xz",
    "zstd",
    "modprobe",
    "busybox",
    "numactl",
    "redis-server",
    "redis-cli",
    "python3",
];

pub(super) fn ask(fact: Fact) -> Answer {
    let root = Path::new("/");
    match fact {
        Fact::Kernel => kernel(),
        Fact::MemoryNodes | Fact::MemoryTiers | Fact::KernelTiers => tiers(fact),
        Fact::NumaBalancing => setting(Setting::NumaBalancing, root),
        Fact::NumaBalancingIdle => match Setting::NumaBalancing.read(root) {
            Ok(Some(mode)) => Answer::is(mode == "0", format!("mode {mode}")),
            _ => Answer::unknown("the kernel has no such setting"),
        },
        Fact::PromoteRateLimit => setting(Setting::PromoteRateLimitMbps, root),
        Fact::ScanSettings => scan_settings(root),
        Fact::SettingsWritable => writable(&Setting::NumaBalancing.path(root)),
        Fact::Demotion => setting(Setting::DemotionEnabled, root),
        Fact::Btf | Fact::FentryTargets | Fact::Bpf => kernel_types(fact),
        Fact::PidNamespace => namespace::in_initial_pid_namespace().map_or_else(
            || Answer::unknown("/proc/self/ns/pid is not readable"),
            |initial| Answer::is(initial, if initial { "initial" } else { "a container's" }),
        ),
        Fact::Uffd | Fact::UffdWriteProtect | Fact::UffdReadProtect | Fact::UffdMove => {
            uffd_features(fact)
        }
        Fact::UffdKernelFaults => permitted(memory::uffd_for_kernel_faults()),
        Fact::UffdUnprivileged => switch("/proc/sys/vm/unprivileged_userfaultfd"),
        Fact::PagemapScan => permitted(memory::pagemap_scan()),
        Fact::MovePages => match memory::move_pages_query() {
            Ok(PageStatus::On(node)) => Answer::yes(format!("node {node}")),
            Ok(other) => Answer::unknown(format!("a page of ours is {other:?}")),
            Err(errno) => Answer::no(errno.to_string()),
        },
        Fact::CapSysAdmin => capability(Capability::SysAdmin),
        Fact::CapSysPtrace => capability(Capability::SysPtrace),
        Fact::CapSysNice => capability(Capability::SysNice),
        Fact::CapBpf => capability(Capability::Bpf),
        Fact::CapPerfmon => capability(Capability::Perfmon),
        Fact::HugePages => huge_pages(),
        Fact::MaxMapCount => max_map_count(),
        Fact::Swap => swap(),
        Fact::NoNumad => numad(),
        Fact::Pmu => pmu(),
        Fact::Damon => exists("/sys/kernel/mm/damon/admin"),
        Fact::IdlePages => exists("/sys/kernel/mm/page_idle/bitmap"),
        Fact::Qemu => qemu(),
        Fact::Clang => in_path("clang"),
        Fact::LabTools => lab_tools(),
    }
}

fn kernel() -> Answer {
    match fs::read_to_string("/proc/sys/kernel/osrelease") {
        Ok(release) => Answer::yes(release.trim()),
        Err(e) => Answer::unknown(format!("/proc/sys/kernel/osrelease: {e}")),
    }
}

fn tiers(fact: Fact) -> Answer {
    let topology = match Topology::discover(Path::new("/"), &Override::default()) {
        Ok(topology) => topology,
        Err(e) => return Answer::unknown(e.to_string()),
    };
    let nodes = topology.tiers.nodes().len();
    match fact {
        Fact::MemoryNodes => Answer::is(nodes > 1, count(nodes, "node")),
        Fact::MemoryTiers => {
            let tiers = topology.tiers.count();
            let detail = format!("{}, from {:?}", count(tiers, "tier"), topology.source);
            Answer::is(tiers > 1, detail)
        }
        _ => match topology.kernel_tiers {
            Some(tiers) => Answer::is(tiers > 1, count(tiers, "tier")),
            None => Answer::no("the kernel has no memory tiers (before 6.1)"),
        },
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn setting(setting: Setting, root: &Path) -> Answer {
    match setting.read(root) {
        Ok(Some(value)) => Answer::yes(format!("is {value}")),
        Ok(None) => Answer::no(format!("no {}", setting.path(root).display())),
        Err(e) => Answer::unknown(reason(&e)),
    }
}

fn scan_settings(root: &Path) -> Answer {
    match Setting::ScanPeriodMinMs.read(root) {
        Ok(Some(value)) => Answer::yes(format!("shortest period {value} ms")),
        Ok(None) if !root.join("sys/kernel/debug/sched").exists() => {
            Answer::no("debugfs is not mounted at /sys/kernel/debug, or not readable")
        }
        Ok(None) => Answer::no("no sched/numa_balancing in debugfs"),
        Err(e) => Answer::no(reason(&e)),
    }
}

/// An error with its source: where only the words of the error are shown.
fn reason(e: &dyn std::error::Error) -> String {
    e.source()
        .map_or_else(|| e.to_string(), |source| format!("{e}: {source}"))
}

fn writable(path: &Path) -> Answer {
    match fs::OpenOptions::new().write(true).open(path) {
        Ok(_) => Answer::yes(""),
        Err(e) => Answer::no(format!("{}: {e}", path.display())),
    }
}

/// Megabytes of type information: read once.
fn kernel_btf() -> Result<&'static KernelBtf, &'static str> {
    static BTF: OnceLock<Result<KernelBtf, String>> = OnceLock::new();
    let btf = BTF.get_or_init(|| KernelBtf::read().map_err(|e| reason(&e)));
    btf.as_ref().map_err(String::as_str)
}

fn kernel_types(fact: Fact) -> Answer {
    let btf = match kernel_btf() {
        Ok(btf) => btf,
        Err(why) if fact == Fact::Btf => return Answer::no(why),
        Err(_) => return Answer::unknown("the kernel has no BTF"),
    };
    let missing = btf.missing_for_hint_faults();
    match fact {
        Fact::Btf => Answer::yes(""),
        Fact::FentryTargets if missing.is_empty() => Answer::yes(HINT_FAULT_FUNCTIONS.join(", ")),
        Fact::FentryTargets => Answer::no(format!("missing: {}", missing.join(", "))),
        _ => match btf.function_id(HINT_FAULT_FUNCTIONS[0]) {
            Some(id) => permitted(bpf::try_fentry(id)),
            None => Answer::unknown(format!("no {} to try with", HINT_FAULT_FUNCTIONS[0])),
        },
    }
}

fn uffd_features(fact: Fact) -> Answer {
    match (memory::uffd_features(), fact) {
        (Ok(_), Fact::Uffd) => Answer::yes(""),
        (Ok(f), Fact::UffdMove) => Answer::is(f.can_move(), "UFFDIO_MOVE, Linux 6.8"),
        (Ok(f), Fact::UffdReadProtect) => {
            Answer::is(f.can_protect_reads(), "UFFDIO_RWPROTECT, Linux 7.3")
        }
        (Ok(f), _) => Answer::is(f.can_write_protect(), "UFFDIO_WRITEPROTECT, Linux 5.7"),
        (Err(Errno::NOSYS), _) => Answer::no("the kernel has no userfaultfd"),
        (Err(e), _) => Answer::unknown(e.to_string()),
    }
}

/// What the kernel refused, it has or this process may; what it does not know, it has not.
fn permitted(result: Result<(), Errno>) -> Answer {
    match result {
        Ok(()) => Answer::yes(""),
        Err(e @ (Errno::PERM | Errno::ACCESS)) => Answer::no(format!("refused: {e}")),
        Err(e @ (Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP)) => {
            Answer::no(format!("the kernel cannot: {e}"))
        }
        Err(e) => Answer::unknown(e.to_string()),
    }
}

fn switch(path: &str) -> Answer {
    match fs::read_to_string(path) {
        Ok(value) => Answer::is(value.trim() != "0", format!("{path} is {}", value.trim())),
        Err(e) => Answer::unknown(format!("{path}: {e}")),
    }
}

fn capability(capability: Capability) -> Answer {
    caps::has(capability).map_or_else(
        || Answer::unknown("/proc/self/status does not say"),
        |has| Answer::is(has, if has { "" } else { "not in the effective set" }),
    )
}

fn huge_pages() -> Answer {
    let path = "/sys/kernel/mm/transparent_hugepage/enabled";
    match fs::read_to_string(path) {
        Ok(text) => {
            let mode = text.split(['[', ']']).nth(1).unwrap_or("?").to_owned();
            Answer::is(mode != "never", mode)
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Answer::no("the kernel has none"),
        Err(e) => Answer::unknown(format!("{path}: {e}")),
    }
}

fn max_map_count() -> Answer {
    let path = "/proc/sys/vm/max_map_count";
    let text = fs::read_to_string(path).unwrap_or_default();
    match text.trim().parse::<u64>() {
        Ok(n) => Answer::is(n >= MAX_MAP_COUNT_COMFORTABLE, n.to_string()),
        Err(_) => Answer::unknown(format!("{path} is not readable")),
    }
}

fn swap() -> Answer {
    match fs::read_to_string("/proc/swaps") {
        Ok(text) => {
            let areas = text.lines().skip(1).count();
            Answer::is(areas > 0, count(areas, "area"))
        }
        Err(e) => Answer::no(format!("/proc/swaps: {e}")),
    }
}

fn numad() -> Answer {
    let running = process::named("numad");
    match running.first() {
        Some(pid) => Answer::no(format!("process {pid}")),
        None => Answer::yes(""),
    }
}

fn pmu() -> Answer {
    let devices = Path::new("/sys/bus/event_source/devices");
    // Intel's precise events, AMD's IBS, Arm's SPE.
    let sampling = ["cpu/format/ldlat", "ibs_op", "arm_spe_0"];
    match sampling
        .into_iter()
        .find(|name| devices.join(name).exists())
    {
        Some(name) => Answer::yes(name),
        None if devices.join("cpu").exists() => {
            Answer::no("the PMU does not sample addresses of accesses")
        }
        None => Answer::no("no PMU, as in most virtual machines"),
    }
}

fn exists(path: &str) -> Answer {
    match fs::metadata(path) {
        Ok(_) => Answer::yes(""),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Answer::no(format!("no {path}")),
        Err(e) => Answer::unknown(format!("{path}: {e}")),
    }
}

/// The plugin interface that the lab uses came after 9; Debian 12 has 10 in its backports.
fn qemu() -> Answer {
    let found = in_path(QEMU);
    if found.verdict != Verdict::Yes {
        return found;
    }
    let said = Command::new(QEMU).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = said.as_deref().ok().and_then(qemu_version);
    match version {
        Some(version) if version >= QEMU_LEAST => found,
        Some(version) => Answer::no(format!("version {version}, {QEMU_LEAST} is needed")),
        None => Answer::unknown(format!("{QEMU} does not say its version")),
    }
}

/// `QEMU emulator version 10.0.2 (Debian …)`.
fn qemu_version(said: &str) -> Option<u32> {
    let (_, behind) = said.split_once("version ")?;
    behind.split('.').next()?.parse().ok()
}

fn lab_tools() -> Answer {
    let is_missing = |tool: &&str| in_path(tool).verdict != Verdict::Yes;
    let missing: Vec<&str> = LAB_TOOLS.iter().copied().filter(is_missing).collect();
    if missing.is_empty() {
        return Answer::yes(LAB_TOOLS.join(", "));
    }
    Answer::no(format!("not in PATH: {}", missing.join(", ")))
}

fn in_path(program: &str) -> Answer {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|d| d.join(program))
        .find(|p| p.is_file());
    found.map_or_else(
        || Answer::no(format!("no {program} in PATH")),
        |p| Answer::yes(p.display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulator_s_version_is_read() {
        let said = "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2~bpo12+1)\nCopyright";
        assert_eq!(qemu_version(said), Some(10));
        assert_eq!(qemu_version("QEMU emulator version 7.2.9"), Some(7));
        assert_eq!(qemu_version("hello"), None);
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of the emulator for a machine. Pure: values in, arguments out.
//!
//! Three choices are not obvious. `max-ram-below-4g` puts most memory above 4 GiB, so that it is
//! in `ZONE_NORMAL`, where the kernel's demotion looks. `nokaslr` and `la57=off` fix the kernel's
//! direct map where the plugin expects it. Without `erms` and `fsrm` the kernel and C library move
//! data in words and not in bytes, which the emulator does eight times as fast.

use std::path::Path;
use std::path::PathBuf;

use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

/// Files and settings of one boot that the machine does not say.
#[derive(Debug, Clone)]
pub struct Files {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub plugin: PathBuf,
    /// Options of the plugin, from [`crate::plugin::options`].
    pub plugin_options: Vec<String>,
    /// The memory of the emulated PMU, a file of that many bytes.
    pub pmu: (PathBuf, u64),
    /// The shared directory; sockets and the console's log lie in it, too.
    pub directory: PathBuf,
    /// More host directories: 9p tag and path.
    pub shares: Vec<(String, PathBuf)>,
    /// A network card, for this port alone.
    pub forward: Option<Forward>,
}

/// A TCP port of the guest that the host can reach on its loopback interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    pub host: u16,
    pub guest: u16,
}

/// The address that the emulator's network gives to the guest.
pub const GUEST_ADDRESS: &str = "10.0.2.15";

/// Names of the sockets in the shared directory and of the guest's ports.
pub const PORTS: [&str; 3] = ["ctl", "out", "err"];
/// The console's log in the shared directory.
pub const CONSOLE: &str = "console.log";

/// Why a machine cannot be emulated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum QemuError {
    #[error("Machine {0} has no [lab] table; the lab cannot emulate it")]
    NoLab(String),
    #[error("Machine {machine}: node {node} has {kib} KiB in the lab, QEMU wants whole MiB")]
    Size {
        machine: String,
        node: usize,
        kib: u64,
    },
    #[error("Machine {machine} has {cpus} lab CPUs, at most {most} are possible")]
    Cpus {
        machine: String,
        cpus: u32,
        most: u32,
    },
}

/// The plugin's limits, `MAX_VCPUS` of `eval/lab/plugin/model.h`.
const MAX_VCPUS: u32 = 16;
const MIB: u64 = 1 << 20;

/// The lab's settings of a machine, checked for what only the emulator minds.
///
/// # Errors
///
/// [`QemuError`] if there are none or they are beyond the emulator.
pub fn lab_of(machine: &Machine) -> Result<Lab, QemuError> {
    let lab = machine
        .lab
        .ok_or_else(|| QemuError::NoLab(machine.name.clone()))?;
    let cpus = lab.cpus * u32::try_from(machine.sockets.len()).unwrap_or(u32::MAX);
    if cpus > MAX_VCPUS {
        return Err(QemuError::Cpus {
            machine: machine.name.clone(),
            cpus,
            most: MAX_VCPUS,
        });
    }
    for (node, bytes) in node_bytes(machine).into_iter().enumerate() {
        if bytes % MIB != 0 {
            let kib = bytes / 1024;
            return Err(QemuError::Size {
                machine: machine.name.clone(),
                node,
                kib,
            });
        }
    }
    Ok(lab)
}

/// Sizes of the nodes in the lab.
#[must_use]
pub fn node_bytes(machine: &Machine) -> Vec<u64> {
    machine
        .nodes
        .iter()
        .map(|node| node.lab_bytes.unwrap_or(0))
        .collect()
}

/// The kernel's command line.
#[must_use]
pub fn kernel_options() -> String {
    [
        "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic",
        // What the plugin relies on.
        "nokaslr",
        // What an emulator has no use for, or is slow at.
        "mitigations=off audit=0 nowatchdog tsc=reliable no_timer_check random.trust_cpu=on",
        "rcupdate.rcu_expedited=1 cryptomgr.notests",
        // The systems under test switch it on.
        "numa_balancing=disable",
    ]
    .join(" ")
}

/// A value inside a QEMU option list: commas are doubled.
fn quoted(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

fn memory_arguments(machine: &Machine) -> Vec<String> {
    let mut args = Vec::new();
    let nodes = machine.nodes.len();
    for (id, bytes) in node_bytes(machine).into_iter().enumerate() {
        args.push("-object".to_owned());
        args.push(format!(
            "memory-backend-ram,id=mem{id},size={}M",
            bytes / MIB
        ));
    }
    for id in 0..nodes {
        let home = machine.nodes[id]
            .socket
            .filter(|&socket| machine.is_home(socket, id));
        let initiator = match home {
            Some(_) => String::new(),
            None => format!(",initiator={}", nearest_home(machine, id)),
        };
        args.push("-numa".to_owned());
        args.push(format!("node,nodeid={id},memdev=mem{id}{initiator}"));
        if let Some(socket) = home {
            args.push("-numa".to_owned());
            args.push(format!("cpu,node-id={id},socket-id={socket}"));
        }
    }
    for from in 0..nodes {
        for to in (0..nodes).filter(|&to| to != from) {
            args.push("-numa".to_owned());
            args.push(format!(
                "dist,src={from},dst={to},val={}",
                machine.distance(from, to)
            ));
        }
    }
    args
}

/// The home node of the socket that reads `node` fastest.
fn nearest_home(machine: &Machine, node: usize) -> usize {
    let reads = |socket: usize| machine.path(socket, node).read_ns;
    let nearest = (0..machine.sockets.len()).min_by(|&a, &b| reads(a).total_cmp(&reads(b)));
    nearest.and_then(|socket| machine.home(socket)).unwrap_or(0)
}

/// What the firmware tells the kernel of latencies and bandwidths (ACPI HMAT).
fn hmat_arguments(machine: &Machine) -> Vec<String> {
    let mut args = Vec::new();
    for socket in 0..machine.sockets.len() {
        let Some(home) = machine.home(socket) else {
            continue;
        };
        for node in 0..machine.nodes.len() {
            let path = machine.path(socket, node);
            let from_to = format!("hmat-lb,initiator={home},target={node},hierarchy=memory");
            args.push("-numa".to_owned());
            args.push(format!(
                "{from_to},data-type=access-latency,latency={:.0}",
                path.read_ns
            ));
            args.push("-numa".to_owned());
            // The table holds 16-bit multiples of one unit for all its entries.
            let rate = (path.read_bandwidth / MIB).next_multiple_of(128);
            args.push(format!(
                "{from_to},data-type=access-bandwidth,bandwidth={rate}M"
            ));
        }
    }
    args
}

fn device_arguments(files: &Files) -> Vec<String> {
    let mut args = Vec::new();
    let mut push = |flag: &str, value: String| args.extend([flag.to_owned(), value]);
    push(
        "-fsdev",
        "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap".to_owned(),
    );
    push(
        "-device",
        "virtio-9p-pci,fsdev=host,mount_tag=host".to_owned(),
    );
    let lab = ("lab".to_owned(), files.directory.clone());
    for (tag, path) in std::iter::once(&lab).chain(&files.shares) {
        push(
            "-fsdev",
            format!(
                "local,id={tag},path={},security_model=passthrough,multidevs=remap",
                quoted(path)
            ),
        );
        push(
            "-device",
            format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
        );
    }
    let (pmu, bytes) = &files.pmu;
    push(
        "-object",
        format!(
            "memory-backend-file,id=pmu,share=on,size={bytes},mem-path={}",
            quoted(pmu)
        ),
    );
    push("-device", "ivshmem-plain,memdev=pmu".to_owned());
    push("-device", "virtio-serial-pci".to_owned());
    for port in PORTS {
        let socket = quoted(&files.directory.join(port));
        push(
            "-chardev",
            format!("socket,id={port},path={socket},server=off"),
        );
        push(
            "-device",
            format!("virtserialport,chardev={port},name=terrace.{port}"),
        );
    }
    if let Some(Forward { host, guest }) = files.forward {
        // Nothing but this port gets through, either way.
        let rule = format!("tcp:127.0.0.1:{host}-{GUEST_ADDRESS}:{guest}");
        push("-netdev", format!("user,id=net,restrict=on,hostfwd={rule}"));
        push("-device", "virtio-net-pci,netdev=net,romfile=".to_owned());
    }
    push(
        "-serial",
        format!("file:{}", quoted(&files.directory.join(CONSOLE))),
    );
    args
}

/// All arguments of `qemu-system-x86_64`.
///
/// # Errors
///
/// As [`lab_of`].
pub fn arguments(machine: &Machine, files: &Files) -> Result<Vec<String>, QemuError> {
    let lab = lab_of(machine)?;
    let sockets = machine.sockets.len();
    let cpus = usize::try_from(lab.cpus).unwrap_or(1);
    let total: u64 = node_bytes(machine).iter().sum();
    let plugin = std::iter::once(format!("file={}", quoted(&files.plugin)))
        .chain(
            files
                .plugin_options
                .iter()
                .map(|option| option.replace(',', ",,")),
        )
        .collect::<Vec<_>>()
        .join(",");
    let mut args: Vec<String> = [
        "-no-user-config".to_owned(),
        "-nodefaults".to_owned(),
        // Threads have names.
        "-name".to_owned(),
        "terrace-lab,debug-threads=on".to_owned(),
        "-no-reboot".to_owned(),
        "-display".to_owned(),
        "none".to_owned(),
        "-machine".to_owned(),
        format!("q35,hmat=on,max-ram-below-4g={}", lab.below_4g),
        "-accel".to_owned(),
        "tcg,thread=multi".to_owned(),
        "-cpu".to_owned(),
        "max,la57=off,-erms,-fsrm".to_owned(),
        "-m".to_owned(),
        format!("{}M", total / MIB),
        "-smp".to_owned(),
        format!(
            "{},sockets={sockets},cores={cpus},threads=1",
            cpus * sockets
        ),
    ]
    .into();
    args.extend(memory_arguments(machine));
    args.extend(hmat_arguments(machine));
    args.extend(["-kernel".to_owned(), files.kernel.display().to_string()]);
    args.extend(["-initrd".to_owned(), files.initramfs.display().to_string()]);
    args.extend(["-append".to_owned(), kernel_options()]);
    args.extend(device_arguments(files));
    args.extend(["-plugin".to_owned(), plugin]);
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        Machine::load(&path).unwrap()
    }

    fn files() -> Files {
        Files {
            kernel: "/k".into(),
            initramfs: "/i".into(),
            plugin: "/a,b/p.so".into(),
            plugin_options: vec!["series=/d/s".into()],
            pmu: ("/d/pmu".into(), 2 << 20),
            directory: "/d".into(),
            shares: vec![("share0".into(), "/x".into())],
            forward: None,
        }
    }

    #[test]
    fn two_tiers() {
        let args = arguments(&machine(), &files()).unwrap().join(" ");
        for expected in [
            "-smp 2,sockets=1,cores=2,threads=1",
            "-numa node,nodeid=0,memdev=mem0 -numa cpu,node-id=0,socket-id=0",
            "-numa node,nodeid=1,memdev=mem1,initiator=0",
            "dist,src=0,dst=1,val=20 -numa dist,src=1,dst=0,val=20",
            "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=250",
            "-plugin file=/a,,b/p.so,series=/d/s",
            "fsdev=share0,mount_tag=share0",
            "-object memory-backend-file,id=pmu,share=on,size=2097152,mem-path=/d/pmu",
        ] {
            assert!(args.contains(expected), "no '{expected}' in {args}");
        }
    }

    #[test]
    fn a_network_card_only_for_a_forwarded_port() {
        let mut files = files();
        let args = arguments(&machine(), &files).unwrap().join(" ");
        assert!(!args.contains("-netdev"), "{args}");
        files.forward = Some(Forward {
            host: 40_000,
            guest: 7777,
        });
        let args = arguments(&machine(), &files).unwrap().join(" ");
        let expected = "restrict=on,hostfwd=tcp:127.0.0.1:40000-10.0.2.15:7777";
        assert!(args.contains(expected), "no '{expected}' in {args}");
    }

    #[test]
    fn sizes_are_whole_mebibytes() {
        let text = std::fs::read_to_string(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml"),
        )
        .unwrap();
        let odd = text.replace("lab_capacity = \"992MiB\"", "lab_capacity = \"992001KiB\"");
        assert_ne!(odd, text);
        let machine = Machine::parse(&odd, Path::new("m")).unwrap();
        assert!(matches!(
            lab_of(&machine),
            Err(QemuError::Size { node: 1, .. })
        ));
    }
}

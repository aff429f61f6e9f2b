// SPDX-License-Identifier: MIT OR Apache-2.0
//! Process 1 of the guest: finishes the set-up, runs the job, reports, powers off.
//!
//! It runs on the host's files over 9p. What it uses itself (its own pages, page cache) is moved to
//! the slow node before the command starts, so that the fast node is the command's.

use std::fs;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::thread::JoinHandle;

use rustix::mount::MountFlags;
use rustix::process::WaitOptions;

use crate::job::Delays;
use crate::job::GUEST_DIR;
use crate::job::GuestNode;
use crate::job::JOB_FILE;
use crate::job::Job;
use crate::job::Report;
use crate::lab_marker;
use crate::qemu;

mod numa;

/// The network card, where there is one.
const CARD: &str = "eth0";

/// Why the guest could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {what}: {source}")]
struct SetupError {
    what: String,
    source: io::Error,
}

fn failed<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> SetupError {
    move |source| SetupError {
        what: what.into(),
        source: source.into(),
    }
}

/// Runs as process 1 and does not return: at the end the machine is off.
pub fn main() -> ! {
    let control = port("ctl");
    let control = match control {
        Ok(control) => control,
        Err(error) => {
            eprintln!("terrace-lab guest-init: cannot open the control port: {error}");
            power_off()
        }
    };
    let report = run(&control).unwrap_or_else(|error| Report::Failed {
        what: error.to_string(),
    });
    if say(&control, &report).is_ok() {
        let mut answer = String::new();
        // Whatever comes, or the end of the connection: the host is done.
        let _ = BufReader::new(&control).read_line(&mut answer);
    }
    power_off()
}

fn power_off() -> ! {
    rustix::fs::sync();
    let _ = rustix::system::reboot(rustix::system::RebootCommand::PowerOff);
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

fn say(mut control: &File, report: &Report) -> io::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    control.write_all(line.as_bytes())
}

fn run(control: &File) -> Result<Report, SetupError> {
    let text = fs::read_to_string(Path::new(GUEST_DIR).join(JOB_FILE));
    let job: Job = text
        .and_then(|text| serde_json::from_str(&text).map_err(Into::into))
        .map_err(failed("read the job"))?;
    mounts(&job)?;
    network(&job)?;
    if !Path::new("/dev/userfaultfd").exists() {
        return Err(failed("find /dev/userfaultfd")(io::Error::from(
            io::ErrorKind::NotFound,
        )));
    }
    numa::leave_node(job.fast_node, job.lab_node).map_err(failed("move off the fast node"))?;
    write("/proc/sys/vm/drop_caches", "3")?;

    say(control, &ready()?).map_err(failed("report"))?;
    command(&job)
}

fn write(path: &str, text: &str) -> Result<(), SetupError> {
    fs::write(path, text).map_err(failed(format!("write {path}")))
}

/// Opens a virtio port by the name the host gave it.
fn port(name: &str) -> io::Result<File> {
    for entry in fs::read_dir("/sys/class/virtio-ports")? {
        let entry = entry?;
        let given = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if given.trim() == format!("terrace.{name}") {
            let device = Path::new("/dev").join(entry.file_name());
            return File::options().read(true).write(true).open(device);
        }
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!("no port terrace.{name}"),
    ))
}

fn mount(kind: &str, at: &str, options: &str) -> Result<(), SetupError> {
    fs::create_dir_all(at).map_err(failed(format!("make {at}")))?;
    let options = std::ffi::CString::new(options).map_err(failed("read mount options"))?;
    rustix::mount::mount(kind, at, kind, MountFlags::empty(), options.as_c_str())
        .map_err(failed(format!("mount {kind} at {at}")))
}

fn mounts(job: &Job) -> Result<(), SetupError> {
    mount("devpts", "/dev/pts", "mode=620,ptmxmode=666")?;
    mount("tmpfs", "/dev/shm", "mode=1777")?;
    mount("debugfs", "/sys/kernel/debug", "")?;
    mount("tracefs", "/sys/kernel/tracing", "")?;
    mount("bpf", "/sys/fs/bpf", "mode=700")?;
    mount("cgroup2", "/sys/fs/cgroup", "")?;
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "fd/0"),
        ("stdout", "fd/1"),
        ("stderr", "fd/2"),
    ] {
        let link = Path::new("/dev").join(name);
        if !link.exists() {
            std::os::unix::fs::symlink(to, &link).map_err(failed(format!("link /dev/{name}")))?;
        }
    }
    for (tag, path) in &job.shares {
        fs::create_dir_all(path).map_err(failed(format!("make {path}")))?;
        let options = c"trans=virtio,version=9p2000.L,cache=none,msize=262144";
        rustix::mount::mount(
            tag.as_str(),
            path.as_str(),
            "9p",
            MountFlags::empty(),
            options,
        )
        .map_err(failed(format!("mount the share {path}")))?;
    }
    Ok(())
}

fn network(job: &Job) -> Result<(), SetupError> {
    write("/proc/sys/kernel/hostname", "terrace-lab")?;
    bring_up("lo", "127.0.0.1")?;
    if job.network {
        bring_up(CARD, qemu::GUEST_ADDRESS)?;
        interrupt_the_last_cpu().map_err(failed("direct the network card's interrupts"))?;
    }
    Ok(())
}

/// Lets the network card interrupt the last processor. Which one it interrupts would else be chance,
/// and a server on the same one would share it with the card's work.
fn interrupt_the_last_cpu() -> io::Result<()> {
    let last = std::thread::available_parallelism()?.get() - 1;
    let device = fs::canonicalize(format!("/sys/class/net/{CARD}/device"))?;
    let interrupts = device.parent().unwrap_or(&device).join("msi_irqs");
    for interrupt in fs::read_dir(interrupts)? {
        let number = interrupt?.file_name();
        let list = Path::new("/proc/irq")
            .join(number)
            .join("smp_affinity_list");
        // The device has more of them than it uses.
        if list.exists() {
            fs::write(list, last.to_string())?;
        }
    }
    Ok(())
}

fn bring_up(interface: &str, address: &str) -> Result<(), SetupError> {
    let busybox = Path::new(GUEST_DIR).join("busybox");
    let up = Command::new(busybox)
        .args(["ifconfig", interface, address, "up"])
        .status();
    match up.map_err(failed("run busybox"))? {
        status if status.success() => Ok(()),
        _ => Err(failed(format!("bring up the interface {interface}"))(
            io::Error::other("ifconfig failed"),
        )),
    }
}

/// The guest as it is now, in one report.
fn ready() -> Result<Report, SetupError> {
    let read = |path: &str| fs::read_to_string(path).map_err(failed(format!("read {path}")));
    let uptime = read("/proc/uptime")?;
    let uptime_s = uptime
        .split(' ')
        .next()
        .and_then(|s| s.parse().ok())
        .unwrap_or(0.0);
    let kernel = read("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let mut nodes = Vec::new();
    for id in 0.. {
        let path = format!("/sys/devices/system/node/node{id}/meminfo");
        let Ok(text) = fs::read_to_string(path) else {
            break;
        };
        let value = |key: &str| {
            let line = text.lines().find(|line| line.contains(key));
            line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok())
                .unwrap_or(0)
        };
        nodes.push(GuestNode {
            id,
            total_kib: value("MemTotal:"),
            free_kib: value("MemFree:"),
            tier: tier_of(id),
        });
    }
    Ok(Report::Ready {
        uptime_s,
        kernel,
        nodes,
    })
}

/// Name of the memory tier a node is in, as the kernel has it.
fn tier_of(node: usize) -> String {
    let Ok(tiers) = fs::read_dir("/sys/devices/virtual/memory_tiering") else {
        return String::new();
    };
    for tier in tiers.flatten() {
        let list = fs::read_to_string(tier.path().join("nodelist")).unwrap_or_default();
        if in_list(&list, node) {
            return tier.file_name().to_string_lossy().into_owned();
        }
    }
    String::new()
}

/// True if `number` is in a list like `0-2,5`.
fn in_list(list: &str, number: usize) -> bool {
    list.trim().split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) => (first..=last).contains(&number),
            _ => false,
        }
    })
}

/// Copies a pipe to a port until its end; the number of bytes is the thread's result.
fn forward(mut from: impl Read + Send + 'static, mut to: File) -> JoinHandle<u64> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 32 << 10];
        let mut total = 0;
        while let Ok(got @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..got]).is_err() {
                break;
            }
            total += got as u64;
        }
        total
    })
}

/// Runs the job's command to its end.
fn command(job: &Job) -> Result<Report, SetupError> {
    let [out, err] = [port("out"), port("err")];
    let (out, mut err) = (
        out.map_err(failed("open the output port"))?,
        err.map_err(failed("open the error port"))?,
    );
    let (program, arguments) = job
        .command
        .split_first()
        .ok_or_else(|| failed("run nothing")(io::Error::from(io::ErrorKind::InvalidInput)))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&job.environment)
        .current_dir(&job.directory);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(numa::default_policy) };
    if job.delays == Delays::On {
        lab_marker::start();
    }
    lab_marker::mark("command:start");
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let text = format!("terrace-lab: Cannot run {program}: {error}\n");
            err.write_all(text.as_bytes())
                .map_err(failed("write to the error port"))?;
            let code = if error.kind() == io::ErrorKind::NotFound {
                127
            } else {
                126
            };
            let stderr_bytes = text.len() as u64;
            return Ok(Report::Exit {
                code,
                stdout_bytes: 0,
                stderr_bytes,
            });
        }
    };
    let stdout = child.stdout.take().map(|pipe| forward(pipe, out));
    let stderr = child.stderr.take().map(|pipe| forward(pipe, err));
    let code = wait_for(child.id());
    lab_marker::mark("command:end");
    lab_marker::stop();
    kill_the_rest();
    let bytes = |thread: Option<JoinHandle<u64>>| thread.and_then(|t| t.join().ok()).unwrap_or(0);
    Ok(Report::Exit {
        code,
        stdout_bytes: bytes(stdout),
        stderr_bytes: bytes(stderr),
    })
}

/// Reaps children, adopted ones too, until `pid` is done.
fn wait_for(pid: u32) -> i32 {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((ended, status))) if ended.as_raw_nonzero().get().cast_unsigned() == pid => {
                let status = std::process::ExitStatus::from_raw(status.as_raw());
                return status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return 126,
        }
    }
}

/// What the command left running would hold its output open for ever.
fn kill_the_rest() {
    let own = std::process::id();
    let Ok(processes) = fs::read_dir("/proc") else {
        return;
    };
    for process in processes.flatten() {
        let Some(pid) = process
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<i32>().ok())
        else {
            continue;
        };
        // Kernel threads have no program, and take no signals.
        let program: io::Result<PathBuf> = fs::read_link(process.path().join("exe"));
        if pid.cast_unsigned() != own
            && program.is_ok()
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_lists() {
        assert!(in_list("0-2,5\n", 1) && in_list("0-2,5", 5) && in_list("3", 3));
        assert!(!in_list("0-2,5", 3) && !in_list("", 0) && !in_list("\n", 0));
    }
}

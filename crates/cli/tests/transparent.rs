// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace run` is not seen by a program, its terminal, and who sends it signals: each is compared with what
//! happens without it.

use std::io::Read;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);

/// `terrace run` as words of a shell.
fn terrace() -> String {
    let binary = assert_cmd::cargo::cargo_bin("terrace");
    format!("{} run --policy none --", binary.display())
}

/// Runs a script of the shell; `RUN` stands for what comes before a program.
fn sh(dir: &Path, script: &str, run: &str) -> Output {
    Command::new("sh")
        .args(["-c", &script.replace("RUN", run)])
        .env("TERRACE_RUN_DIR", dir)
        .output()
        .expect("sh is there")
}

/// With and without Terrace, standard output and end are the same. Gives the output.
fn alike(script: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let (with, without) = (
        sh(dir.path(), script, &terrace()),
        sh(dir.path(), script, ""),
    );
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text(&with), text(&without), "{script}: {with:?}");
    assert_eq!(with.status, without.status, "{script}");
    text(&with)
}

#[test]
fn what_signals_do_at_the_start_is_inherited() {
    // Without 32 and 33, which are the C library's own.
    let shown = "sh -c 'while read name bits; do case $name in Sig[BI]*) \
                 echo $name $((0x$bits & ~0x180000000));; esac; done </proc/self/status'";
    for ignored in [
        "",
        "PIPE",
        "HUP",
        "CHLD",
        "PIPE HUP INT QUIT TERM USR1 CHLD",
    ] {
        let trap = if ignored.is_empty() {
            String::new()
        } else {
            format!("trap '' {ignored}; ")
        };
        let said = alike(&format!("{trap}exec RUN {shown}"));
        assert!(said.contains("SigIgn"), "{said}");
    }
}

#[test]
fn closed_descriptors_stay_closed() {
    for closed in ["", "0<&-", "1>&- 3>&2", "0<&- 2>&-"] {
        // Descriptor 3 is the directory that ls reads, or what was lent.
        let said = alike(&format!(
            "RUN sh -c 'ls /proc/self/fd | tr \"\\n\" \" \"' {closed}"
        ));
        assert!(closed.contains("1>") || said.contains('1'), "{said}");
    }
}

#[test]
fn standard_error_that_takes_nothing_changes_nothing() {
    for stderr in ["2>/dev/full", "2>&-", "2>&1 | true"] {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("ran");
        let run = terrace().replace("--policy none", "--policy none --stats");
        let script = format!(
            "(RUN sh -c 'echo ran >{}; exit 7' {stderr})",
            file.display()
        );
        let output = sh(dir.path(), &script, &run);
        if !stderr.contains('|') {
            assert_eq!(output.status.code(), Some(7), "{stderr}: {output:?}");
        }
        assert_eq!(std::fs::read_to_string(&file).expect("it ran"), "ran\n");
    }
}

#[test]
fn it_ends_as_the_program_does() {
    for end in [
        "exit 0",
        "exit 42",
        "kill -TERM $$",
        "kill -KILL $$",
        "kill -USR1 $$",
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        let output = sh(dir.path(), &format!("exec RUN sh -c '{end}'"), &terrace());
        let plain = Command::new("sh").args(["-c", end]).output().expect("sh");
        assert_eq!(output.status, plain.status, "{end}");
        assert!(!output.status.core_dumped());
    }
}

/// Starts it in a directory and gives what it wrote there meanwhile.
fn wrote(script: &str, run: &str) -> (Output, String) {
    let dir = tempfile::tempdir().expect("a directory");
    let output = sh(
        dir.path(),
        &format!("cd {}; {script}", dir.path().display()),
        run,
    );
    let file = dir.path().join("said");
    (output, std::fs::read_to_string(file).unwrap_or_default())
}

#[test]
fn a_program_that_goes_into_the_background_is_waited_for() {
    // Its first process ends at once, by 7, and so does the one between.
    let daemon = "sh -c '(setsid sh -c \"sleep 1; echo daemon >>said\" >/dev/null 2>&1 &) & echo first >>said; exit 7'";
    let (output, said) = wrote(&format!("RUN {daemon}"), &terrace());
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(said, "first\ndaemon\n");
    let alone = terrace().replace("run ", "run --no-follow ");
    let (output, said) = wrote(&format!("RUN {daemon}"), &alone);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(said, "first\n");
    // By a signal likewise.
    let (output, said) = wrote(
        "exec RUN sh -c 'sh -c \"sleep 1; echo daemon >>said\" >/dev/null 2>&1 & kill -KILL $$'",
        &terrace(),
    );
    assert_eq!(output.status.signal(), Some(9), "{output:?}");
    assert_eq!(said, "daemon\n");
}

#[test]
fn who_was_there_before_is_not_waited_for() {
    let begun = Instant::now();
    let (output, said) = wrote(
        "sleep 30 >/dev/null 2>&1 & exec RUN sh -c 'echo first >>said'",
        &terrace(),
    );
    assert!(output.status.success(), "{output:?}");
    assert_eq!(said, "first\n");
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn orphans_that_end_leave_no_zombie_and_the_program_hears_nothing() {
    // 200 orphans end while the program runs; the run's children are then the program alone. The program itself
    // gets no SIGCHLD for them, and has no child to wait for.
    let script = "import os, signal, time
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
for _ in range(200):
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            time.sleep(0.05)
        os._exit(0)
    os.waitpid(middle, 0)
before = len(heard)
time.sleep(2)
run = os.getppid()
children = open(f'/proc/{run}/task/{run}/children').read().split()
try:
    os.waitpid(-1, os.WNOHANG)
    print('a child')
except ChildProcessError:
    print('no child', len(heard) - before, len(children))";
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("orphans.py");
    std::fs::write(&file, script).expect("writable");
    let line = format!("RUN python3 {}", file.display());
    let output = sh(dir.path(), &line, &terrace());
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text, "no child 0 1\n", "{output:?}");
}

#[test]
fn a_signal_after_the_program_s_end_lets_the_others_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut run = Command::new("env")
        .arg("--default-signal")
        .arg(assert_cmd::cargo::cargo_bin("terrace"))
        .args(["run", "--policy", "none", "--", "sh", "-c"])
        .arg("setsid sh -c 'echo $$; exec sleep 60' & sleep 0.5; exit 3")
        .env("TERRACE_RUN_DIR", dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let daemon = line(&mut run);
    std::thread::sleep(Duration::from_secs(2));
    assert!(run.try_wait().expect("ours").is_none(), "it waits");
    let kill = |name: &str, pid: &str| Command::new("kill").args(["-s", name, pid]).status();
    kill("INT", &run.id().to_string()).expect("kill");
    assert_eq!(run.wait().expect("ends").code(), Some(3));
    let lives = kill("KILL", &daemon).expect("kill");
    assert!(lives.success(), "it goes on alone");
}

/// A program that says which signals come, until it is told to end by a line.
const LISTENER: &str = "import signal, sys, os
signal.alarm(60)
def came(n, _): os.write(1, (signal.Signals(n).name + '\\n').encode())
for n in ('HUP', 'INT', 'QUIT', 'TERM', 'USR1', 'USR2'): signal.signal(getattr(signal, 'SIG' + n), came)
os.write(1, b'ready\\n')
sys.stdin.readline()
sys.exit(5)";

fn line(child: &mut Child) -> String {
    let out = child.stdout.as_mut().expect("piped");
    let mut text = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).expect("readable") == 1 && byte != *b"\n" {
        text.extend(byte);
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

#[test]
fn signals_to_it_are_signals_to_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    // These tests may be run where some are ignored, in the background or by nohup.
    let mut run = Command::new("env")
        .arg("--default-signal")
        .arg(assert_cmd::cargo::cargo_bin("terrace"))
        .args(["run", "--policy", "none", "--", "python3", "-c", LISTENER])
        .env("TERRACE_RUN_DIR", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    assert_eq!(line(&mut run), "ready");
    for name in ["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "TERM"] {
        let sent = Command::new("kill")
            .args(["-s", name, &run.id().to_string()])
            .status();
        assert!(sent.expect("kill").success());
        assert_eq!(line(&mut run), format!("SIG{name}"));
    }
    run.stdin
        .take()
        .expect("piped")
        .write_all(b"end\n")
        .expect("it listens");
    let status = run.wait().expect("ends");
    assert_eq!((status.code(), status.signal()), (Some(5), None));
}

/// Types into a terminal and waits for what is shown.
struct Terminal {
    script: Child,
    shown: std::sync::mpsc::Receiver<Vec<u8>>,
    text: String,
    /// Of the text, what has been waited for.
    seen: usize,
}

impl Drop for Terminal {
    /// A test that failed leaves nothing running.
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

impl Terminal {
    /// The command is one of `sh`, which gets the keys' signals too where it does not `exec`.
    fn open(dir: &Path, command: &str) -> Self {
        let mut script = Command::new("script")
            .args(["-qec", command, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERRACE_RUN_DIR", dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) is there");
        let mut out = script.stdout.take().expect("piped");
        let (tell, shown) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n) = out.read(&mut some)
                && n > 0
                && tell.send(some[..n].to_vec()).is_ok()
            {}
        });
        Self {
            script,
            shown,
            text: String::new(),
            seen: 0,
        }
    }

    fn types(&mut self, keys: &[u8]) {
        let input = self.script.stdin.as_mut().expect("piped");
        input.write_all(keys).expect("a terminal");
        input.flush().expect("a terminal");
    }

    /// Waits until it is shown, after what was waited for before.
    fn follows(&mut self, what: &str) {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.text[self.seen..].find(what) {
                self.seen += at + what.len();
                return;
            }
            let left = PATIENCE.saturating_sub(begun.elapsed());
            let more = self.shown.recv_timeout(left);
            let more = more.unwrap_or_else(|_| panic!("no {what:?} in {:?}", self.text));
            self.text += &String::from_utf8_lossy(&more);
        }
    }

    /// Ends what reads words, and then the shell, which drops what was typed before it had the terminal again.
    fn leave(&mut self) {
        self.types(b"\x04");
        self.follows("bash-");
        self.types(b"exit 3\n");
    }
}

#[test]
fn the_terminal_s_keys_reach_the_program_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("listener.py");
    std::fs::write(&file, LISTENER).expect("writable");
    let command = format!(
        "exec env --default-signal {} python3 {}",
        terrace(),
        file.display()
    );
    let mut terminal = Terminal::open(dir.path(), &command);
    terminal.follows("ready");
    for _ in 0..3 {
        terminal.types(b"\x03");
        terminal.follows("SIGINT");
    }
    terminal.types(b"\x1c");
    terminal.follows("SIGQUIT");
    terminal.types(b"end\n");
    assert_eq!(terminal.script.wait().expect("ends").code(), Some(5));
    while let Ok(more) = terminal.shown.recv() {
        terminal.text += &String::from_utf8_lossy(&more);
    }
    assert_eq!(
        terminal.text.matches("SIGINT").count(),
        3,
        "{}",
        terminal.text
    );
    assert_eq!(
        terminal.text.matches("SIGQUIT").count(),
        1,
        "{}",
        terminal.text
    );
}

/// A program that reads words, run by an interactive shell.
fn reader(dir: &Path, before: &str) -> Terminal {
    let mut terminal = Terminal::open(dir, "env -u PS1 bash --norc --noprofile -i");
    let program = "echo be\"\"gun; while read word; do echo got-$word; done";
    terminal.types(format!("{before} sh -c '{program}'\n").as_bytes());
    terminal.follows("begun");
    terminal
}

#[test]
fn it_can_be_stopped_and_brought_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut terminal = reader(dir.path(), &terrace());
    for turn in 0..5 {
        terminal.types(b"\x1a");
        terminal.follows("Stopped");
        // What is typed from here on is the shell's, every letter of it.
        terminal.types(b"fg\n");
        terminal.follows("fg\r\n");
        // The shell names the job that it brings back.
        terminal.follows("read word");
        terminal.types(format!("{turn}\n").as_bytes());
        terminal.follows(&format!("got-{turn}"));
    }
    terminal.leave();
    assert_eq!(terminal.script.wait().expect("ends").code(), Some(3));
}

#[test]
fn a_program_that_stops_itself_is_a_stopped_job() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut terminal = Terminal::open(dir.path(), "bash --norc --noprofile -i");
    // less(1), for one, sends the signal to itself alone.
    let program = format!("{} sh -c 'kill -TSTP $$; echo ba\"\"ck'\n", terrace());
    terminal.types(program.as_bytes());
    terminal.follows("Stopped");
    terminal.types(b"fg\n");
    terminal.follows("back");
    terminal.types(b"exit 3\n");
    assert_eq!(terminal.script.wait().expect("ends").code(), Some(3));
}

#[test]
fn a_program_that_does_not_stop_goes_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let before = format!("{} env --ignore-signal=TSTP", terrace());
    let mut terminal = reader(dir.path(), &before);
    terminal.types(b"\x1a");
    std::thread::sleep(Duration::from_millis(200));
    terminal.types(b"it\n");
    terminal.follows("got-it");
    assert_eq!(
        terminal.text.matches("Stopped").count(),
        0,
        "{}",
        terminal.text
    );
    terminal.leave();
    assert_eq!(terminal.script.wait().expect("ends").code(), Some(3));
}

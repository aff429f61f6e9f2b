// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a program can have the agent, and what `LD_PRELOAD` says then.
//!
//! The loader that the program names decides what becomes of `LD_PRELOAD`. Without one (static) it is not
//! looked at; one for another C library or processor prints an error or fails; sanitizers want to be first and
//! stop otherwise. So the file is looked at before it is started. What it executes later is not: there the
//! loader leaves out, with a message, what does not fit.

use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::path::PathBuf;

use object::LittleEndian;
use object::Object;
use object::ObjectSymbol;
use object::elf::EM_X86_64;
use object::elf::FileHeader64;
use object::elf::PT_INTERP;
use object::read::ReadCache;
use object::read::elf::ElfFile;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;

/// Scripts whose interpreter is a script whose ...
const DEPTH: u32 = 4;
/// The first line of a script, as far as the kernel reads it.
const FIRST_LINE: u64 = 256;

/// What a sanitizer's run-time library defines, in a library of its own or in the program.
const SANITIZERS: [&str; 5] = [
    "__asan_init",
    "__tsan_init",
    "__msan_init",
    "__hwasan_init",
    // It stops all threads, ours too, and reads pages that then nobody brings.
    "__lsan_init",
];
const SANITIZER_LIBRARIES: [&str; 5] = [
    "libasan.so",
    "libtsan.so",
    "libclang_rt.",
    "libhwasan.so",
    "liblsan.so",
];

/// Why a program has no agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// No loader looks at `LD_PRELOAD`.
    Static,
    /// It was built for another C library or processor.
    Foreign,
    /// It has a sanitizer, which must come first.
    Sanitized,
}

impl Unfit {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Static => "is statically linked",
            Self::Foreign => "is not for x86-64 and the GNU C library",
            Self::Sanitized => "has a sanitizer, which must be loaded first",
        }
    }
}

/// Looks at the file that would be executed. Where that cannot be found or read, starting it will say so.
pub(crate) fn unfit(name: &OsStr) -> Option<Unfit> {
    let mut path = find(name)?;
    for _ in 0..DEPTH {
        match interpreter_of_script(&path) {
            Some(next) => path = next,
            None => return unfit_file(&path),
        }
    }
    None
}

/// As execvp(3) does.
fn find(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn interpreter_of_script(path: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    File::open(path)
        .ok()?
        .take(FIRST_LINE)
        .read_to_end(&mut line)
        .ok()?;
    let line = line.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let word = line.split(blank).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn unfit_file(path: &Path) -> Option<Unfit> {
    let cache = ReadCache::new(File::open(path).ok()?);
    // What is no ELF file of this kind at all is the kernel's business, or binfmt_misc's.
    let header = FileHeader64::<LittleEndian>::parse(&cache);
    let Ok(header) = header else {
        return object::FileKind::parse(&cache)
            .is_ok()
            .then_some(Unfit::Foreign);
    };
    let endian = LittleEndian;
    if header.e_machine.get(endian) != EM_X86_64 {
        return Some(Unfit::Foreign);
    }
    let headers = header.program_headers(endian, &cache).ok()?;
    let interpreter = headers.iter().find(|h| h.p_type(endian) == PT_INTERP);
    let Some(interpreter) = interpreter else {
        return Some(Unfit::Static);
    };
    let loader = interpreter.data(endian, &cache).unwrap_or_default();
    if !contains(loader, b"/ld-linux-x86-64.so") {
        return Some(Unfit::Foreign);
    }
    let file = ElfFile::<FileHeader64<LittleEndian>, _>::parse(&cache).ok()?;
    let is_sanitized = needs(&file).iter().any(|library| {
        let library = String::from_utf8_lossy(library);
        SANITIZER_LIBRARIES
            .iter()
            .any(|name| library.starts_with(name))
    }) || file
        .dynamic_symbols()
        .filter_map(|symbol| symbol.name().ok())
        .any(|name| SANITIZERS.contains(&name));
    is_sanitized.then_some(Unfit::Sanitized)
}

/// The libraries that a file names (`DT_NEEDED`).
fn needs<'data>(
    file: &ElfFile<'data, FileHeader64<LittleEndian>, &'data ReadCache<File>>,
) -> Vec<&'data [u8]> {
    let imports = file.imports().unwrap_or_default();
    imports.iter().map(object::Import::library).collect()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// A path that the loader takes for one: it reads blanks and colons as separators and expands `$`. Others get
/// a link in `dir`; `None` where that does not help.
pub(crate) fn loadable(library: &Path, dir: &Path) -> Option<PathBuf> {
    let plain = |path: &Path| {
        let odd = |byte: &u8| matches!(byte, b' ' | b'\t' | b':' | b'$' | b'\n');
        !path.as_os_str().as_bytes().iter().any(odd)
    };
    if plain(library) {
        return Some(library.to_owned());
    }
    let link = dir.join("libterrace.so");
    if !plain(&link) {
        return None;
    }
    let target = library.canonicalize().ok()?;
    if std::fs::read_link(&link).ok().as_deref() != Some(&target) {
        let fresh = dir.join(format!("libterrace.so.{}", std::process::id()));
        std::os::unix::fs::symlink(&target, &fresh).ok()?;
        std::fs::rename(&fresh, &link).ok()?;
    }
    Some(link)
}

/// Ours first, then what the user preloads anyway.
pub(crate) fn value(library: &Path) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        value.push(":");
        value.push(others);
    }
    value
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Compiles an empty program; `None` where the compiler cannot do that.
    fn compiled(dir: &Path, options: &[&str]) -> Option<PathBuf> {
        let source = dir.join("empty.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").expect("a file");
        let program = dir.join("program");
        let mut compiler = Command::new("cc");
        compiler.args(options).arg("-o").args([&program, &source]);
        let made = compiler.output().expect("a C compiler").status.success();
        made.then_some(program)
    }

    #[test]
    fn what_a_program_is_decides() {
        let dir = tempfile::tempdir().expect("a directory");
        let judged = |options: &[&str]| {
            compiled(dir.path(), options).map(|program| unfit(program.as_os_str()))
        };
        assert_eq!(judged(&[]), Some(None));
        for (options, expected) in [
            (&["-static"][..], Unfit::Static),
            (&["-fsanitize=address"], Unfit::Sanitized),
            (&["-fsanitize=thread"], Unfit::Sanitized),
            (
                &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"],
                Unfit::Foreign,
            ),
        ] {
            match judged(options) {
                Some(judged) => assert_eq!(judged, Some(expected), "{options:?}"),
                None => eprintln!("skipped: the compiler knows no {options:?}"),
            }
        }
        let script = dir.path().join("script");
        std::fs::write(&script, format!("#! {}/program -x\n", dir.path().display()))
            .expect("a file");
        assert_eq!(
            unfit(script.as_os_str()),
            Some(Unfit::Foreign),
            "its interpreter"
        );
        assert_eq!(unfit(OsStr::new("sh")), None);
        assert_eq!(unfit(OsStr::new("no-such-program-here")), None);
    }

    #[test]
    fn odd_paths_get_a_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let odd = dir.path().join("a b:c");
        std::fs::create_dir(&odd).expect("a directory");
        let library = odd.join("libterrace.so");
        std::fs::write(&library, "").expect("a file");
        for _ in 0..2 {
            let link = loadable(&library, dir.path()).expect("a link");
            assert_eq!(link, dir.path().join("libterrace.so"));
            assert_eq!(
                link.canonicalize().expect("it leads somewhere"),
                library.canonicalize().expect("it is there")
            );
        }
        assert_eq!(loadable(&library, &odd), None);
        let plain = Path::new("/usr/lib/libterrace.so");
        assert_eq!(loadable(plain, &odd).as_deref(), Some(plain));
    }
}

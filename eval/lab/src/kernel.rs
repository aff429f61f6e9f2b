// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which kernel the guest boots, and the modules it needs to reach the host's files.
//!
//! The default is a Debian kernel package that `scripts/fetch-kernel` unpacked under
//! `target/lab`; nothing is installed. `--kernel` names the other one that it knows, or with `--modules` any.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// Modules in the order they must be loaded. One that the kernel has built in is skipped.
const MODULES: [&str; 6] = [
    "netfs",
    "9pnet",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// More of them for a guest with a network card.
const NETWORK_MODULES: [&str; 3] = ["failover", "net_failover", "virtio_net"];

/// The releases that can be fetched, the default first, and each one's directory under `target/lab`.
const RELEASES: [(&str, &str); 2] = [("6.12", "kernel"), ("7.3", "kernel-7.3")];

/// A kernel to boot.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub image: PathBuf,
    /// `/lib/modules/VERSION` of that kernel.
    pub modules: PathBuf,
}

/// Why there is no kernel to boot.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error("No guest kernel in {}; run `terrace-lab kernel fetch {release}`", dir.display())]
    Missing { dir: PathBuf, release: &'static str },
    #[error("No kernel release {0} can be fetched; there are 6.12 and 7.3")]
    Unknown(String),
    #[error("No modules for kernel {}; name their directory with --modules", .0.display())]
    NoModules(PathBuf),
    #[error("Kernel modules in {} have no module {name}", dir.display())]
    NoModule { dir: PathBuf, name: &'static str },
    #[error("Cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("Cannot fetch the guest's kernel: {script} {how}", script = script.display())]
    Fetch { script: PathBuf, how: String },
    #[error("Cannot unpack module {} with {tool}", path.display())]
    Unpack { path: PathBuf, tool: &'static str },
}

/// Where a fetched kernel is kept: under `target/lab` of the repository.
fn fetched(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/lab")
        .join(directory)
}

/// A release by its name.
fn release(name: &str) -> Option<(&'static str, PathBuf)> {
    let found = RELEASES.iter().find(|(release, _)| *release == name);
    found.map(|(release, directory)| (*release, fetched(directory)))
}

/// Fetches a release of Debian's kernel, the default one where none is named, unless it is there.
///
/// # Errors
///
/// [`KernelError::Unknown`]; [`KernelError::Fetch`], the script has said why on standard error.
pub fn fetch(name: Option<&str>) -> Result<(), KernelError> {
    let name = name.unwrap_or(RELEASES[0].0);
    let (name, directory) = release(name).ok_or_else(|| KernelError::Unknown(name.to_owned()))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-kernel");
    let failed = |how: String| KernelError::Fetch {
        script: script.clone(),
        how,
    };
    match Command::new(&script).arg(directory).arg(name).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(format!("ended with {status}"))),
        Err(error) => Err(failed(format!("does not start: {error}"))),
    }
}

impl Kernel {
    /// The kernel asked for, by its file or as the name of a release, or the default one.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if the image or its modules are not there.
    pub fn find(image: Option<&Path>, modules: Option<&Path>) -> Result<Self, KernelError> {
        let asked = image.map_or(RELEASES[0].0, |image| image.to_str().unwrap_or_default());
        let image = match (release(asked), image) {
            (None, Some(image)) => image.to_owned(),
            (Some((release, dir)), _) => {
                newest_image(&dir.join("boot")).ok_or(KernelError::Missing { dir, release })?
            }
            (None, None) => return Err(KernelError::Unknown(asked.to_owned())),
        };
        if let Err(source) = fs::metadata(&image) {
            return Err(KernelError::Read {
                path: image,
                source,
            });
        }
        let modules = match modules {
            Some(modules) => modules.to_owned(),
            None => modules_beside(&image).ok_or_else(|| KernelError::NoModules(image.clone()))?,
        };
        Ok(Self { image, modules })
    }

    /// The modules to load, unpacked, in order: file name and contents. Those of a network card only
    /// where there is one.
    ///
    /// # Errors
    ///
    /// [`KernelError`] if one is neither a file nor built in.
    pub fn load_modules(&self, network: bool) -> Result<Vec<(String, Vec<u8>)>, KernelError> {
        let files = find_modules(&self.modules)?;
        let builtin = self.modules.join("modules.builtin");
        let builtin = fs::read_to_string(builtin).unwrap_or_default();
        let mut loaded = Vec::new();
        let more = if network { &NETWORK_MODULES[..] } else { &[] };
        for &name in MODULES.iter().chain(more) {
            if let Some(path) = files.get(name) {
                loaded.push((format!("{name}.ko"), unpack(path)?));
            } else if !builtin
                .lines()
                .any(|line| module_name(Path::new(line)) == Some(name))
            {
                return Err(KernelError::NoModule {
                    dir: self.modules.clone(),
                    name,
                });
            }
        }
        Ok(loaded)
    }
}

/// `vmlinuz-*` of a directory, the last by name.
fn newest_image(boot: &Path) -> Option<PathBuf> {
    let images = fs::read_dir(boot)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()));
    images
        .filter(|path| file_name(path).starts_with("vmlinuz-"))
        .max()
}

/// `../lib/modules/VERSION` for `boot/vmlinuz-VERSION`.
fn modules_beside(image: &Path) -> Option<PathBuf> {
    let version = file_name(image).strip_prefix("vmlinuz-")?;
    let root = image.parent()?.parent()?;
    [root.join("lib/modules"), root.join("usr/lib/modules")]
        .into_iter()
        .map(|base| base.join(version))
        .find(|dir| dir.is_dir())
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// `9pnet` for `…/9pnet.ko.xz`; `None` for what is no module.
fn module_name(path: &Path) -> Option<&str> {
    let (name, packing) = file_name(path).split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"]
        .contains(&packing)
        .then_some(name)
}

/// The files of the modules we need, by name, wherever they lie in the tree.
fn find_modules(dir: &Path) -> Result<HashMap<String, PathBuf>, KernelError> {
    let mut found = HashMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let failed = |source| KernelError::Read {
            path: dir.clone(),
            source,
        };
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // `build` and `source` are links out of the tree: links are not followed.
            if entry.file_type().map_err(failed)?.is_dir() {
                open.push(entry.path());
            } else if let Some(name) = module_name(&entry.path())
                && (MODULES.contains(&name) || NETWORK_MODULES.contains(&name))
            {
                found.insert(name.to_owned(), entry.path());
            }
        }
    }
    Ok(found)
}

fn unpack(path: &Path) -> Result<Vec<u8>, KernelError> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => {
            return fs::read(path).map_err(|source| KernelError::Read {
                path: path.to_owned(),
                source,
            });
        }
    };
    let output = Command::new(tool).arg("-dc").arg(path).output();
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        _ => Err(KernelError::Unpack {
            path: path.to_owned(),
            tool,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_modules() {
        assert_eq!(
            module_name(Path::new("kernel/net/9p/9pnet.ko.xz")),
            Some("9pnet")
        );
        assert_eq!(module_name(Path::new("overlay.ko")), Some("overlay"));
        assert_eq!(module_name(Path::new("overlay.ko.sig")), None);
        assert_eq!(module_name(Path::new("modules.dep")), None);
    }

    #[test]
    fn a_release_is_known_by_its_name_and_anything_else_is_a_file() {
        let directory = |name| release(name).map(|(_, directory)| directory);
        assert!(directory("6.12").is_some_and(|path| path.ends_with("target/lab/kernel")));
        assert!(directory("7.3").is_some_and(|path| path.ends_with("target/lab/kernel-7.3")));
        let error = Kernel::find(Some(Path::new("7.9")), None).unwrap_err();
        assert!(matches!(error, KernelError::Read { .. }), "{error}");
        let error = fetch(Some("7.9")).unwrap_err();
        assert!(matches!(error, KernelError::Unknown(_)), "{error}");
    }

    #[test]
    fn finds_image_and_modules_and_says_what_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let boot = dir.path().join("boot");
        let image = boot.join("vmlinuz-6.1-x");
        fs::create_dir(&boot).unwrap();
        fs::write(&image, "").unwrap();
        let error = Kernel::find(Some(&image), None).unwrap_err();
        assert!(matches!(error, KernelError::NoModules(_)), "{error}");

        let tree = dir.path().join("lib/modules/6.1-x");
        fs::create_dir_all(tree.join("kernel/fs")).unwrap();
        fs::write(tree.join("modules.builtin"), "kernel/fs/netfs/netfs.ko\n").unwrap();
        fs::write(tree.join("kernel/fs/9pnet.ko"), "module").unwrap();
        let kernel = Kernel::find(Some(&image), None).unwrap();
        assert_eq!((&kernel.image, &kernel.modules), (&image, &tree));
        let error = kernel.load_modules(false).unwrap_err();
        assert!(
            matches!(
                error,
                KernelError::NoModule {
                    name: "virtio_console",
                    ..
                }
            ),
            "{error}"
        );
    }
}

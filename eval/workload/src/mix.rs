// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mix`: several workloads at once, each in processes of its own.
//!
//! `of=gups+scan` (the default) names them. With the small sizes each gets an even part of the free
//! fast memory to relate to, with the paper's its own. A parameter of one of them is set with its name in front:
//! `scan.working_set=1GiB`. A name of one's own before a colon tells instances of the same workload apart:
//! `of=kv:zipf+rest:zipf` has the programs `kv` and `rest` and the parameter `kv.working_set`. The default sets a hot set that is worth finding beside a scan that is not,
//! which is what a policy must tell apart; no paper has it.

use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;

const DEFAULT: &str = "gups+scan";

/// `mix`.
pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let of = parameters.text("of", DEFAULT);
    let parts: Vec<&str> = of.split('+').map(str::trim).collect();
    let mut programs = Vec::new();
    let mut labels = Vec::new();
    for part in &parts {
        let (label, name) = match part.split_once(':') {
            Some((label, name)) => (Some(label.trim()), name.trim()),
            None => (None, *part),
        };
        if name == "mix" || !crate::NAMES.contains(&name) {
            return Err(parameters.bad("of", of, "names of workloads other than mix joined by +"));
        }
        if label.is_some_and(|label| !is_label(label) || labels.contains(&label)) {
            let wanted = "each name before a colon once, of letters, digits, - and _";
            return Err(parameters.bad("of", of, wanted));
        }
        labels.extend(label);
        let sizes = parameters.inner(label.unwrap_or(name), parts.len() as u64);
        let mut own = Workload::named(name, &sizes)?.programs;
        if let Some(label) = label {
            let one = own.len() == 1;
            for program in &mut own {
                program.name = if one {
                    label.to_owned()
                } else {
                    format!("{label}.{}", program.name)
                };
            }
        }
        programs.extend(own);
    }
    // The same workload twice: programs are told apart by their place.
    for index in 0..programs.len() {
        let name = programs[index].name.clone();
        let twins = programs.iter().filter(|p| p.name == name).count();
        if twins > 1 {
            programs[index].name = format!("{name}.{index}");
        }
    }
    Ok(Workload {
        name: parameters.workload().to_owned(),
        programs,
    })
}

fn is_label(text: &str) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    !text.is_empty() && text.chars().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    #[test]
    fn each_gets_its_part_and_its_parameters() {
        let sizes = Sizes::fast_free(64 << 20)
            .with("of=gups+zipf+gups")
            .and_then(|sizes| sizes.with("zipf.theta=1.2"))
            .expect("settings");
        let mix = Workload::named("mix", &sizes).expect("known");
        let names: Vec<_> = mix.programs.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["gups.0", "zipf", "gups"], "{names:?}");
        let alone = Workload::named("gups", &Sizes::fast_free((64 << 20) / 3)).expect("known");
        assert_eq!(mix.programs[0].pages, alone.programs[0].pages);
    }

    #[test]
    fn instances_have_names_of_their_own() {
        let sizes = Sizes::fast_free(64 << 20)
            .with("of=kv:zipf+rest:zipf")
            .and_then(|sizes| sizes.with("kv.working_set=1MiB"))
            .expect("settings");
        let mix = Workload::named("mix", &sizes).expect("known");
        let programs = mix.programs.iter().map(|p| (p.name.as_str(), p.pages));
        let alone = Workload::named("zipf", &Sizes::fast_free(32 << 20)).expect("known");
        let wanted = [("kv", 256), ("rest", alone.programs[0].pages)];
        assert_eq!(programs.collect::<Vec<_>>(), wanted);
    }

    #[test]
    fn mistakes_are_named() {
        for (setting, wanted) in [
            ("of=a:gups+a:scan", "of cannot be 'a:gups+a:scan'"),
            ("of=:gups", "of cannot be ':gups'"),
            ("of=a.b:gups", "of cannot be 'a.b:gups'"),
            ("of=gups+mix", "of cannot be 'gups+mix'"),
            ("of=gups+gusp", "of cannot be 'gups+gusp'"),
            ("scan.hot=1GiB", "scan has no parameter 'hot'"),
            ("gusp.hot=1GiB", "mix has no parameter 'gusp.hot'"),
        ] {
            let sizes = Sizes::fast_free(64 << 20).with(setting).expect("setting");
            let text = Workload::named("mix", &sizes)
                .expect_err(setting)
                .to_string();
            assert!(text.starts_with(wanted), "{text}");
        }
    }
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `mix`: several workloads at once, each in processes of its own.
//!
//! `of=gups+scan` (the default) names them. With the small sizes each gets an even part of the free
//! fast memory to relate to, with the paper's its own. A parameter of one of them is set with its name in front:
//! `scan.working_set=1GiB`. The default sets a hot set that is worth finding beside a scan that is not,
//! which is what a policy must tell apart; no paper has it.

use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;

const DEFAULT: &str = "gups+scan";

/// `mix`.
pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let of = parameters.text("of", DEFAULT);
    let names: Vec<&str> = of.split('+').map(str::trim).collect();
    let mut programs = Vec::new();
    for name in &names {
        if *name == "mix" || !crate::NAMES.contains(name) {
            return Err(parameters.bad("of", of, "names of workloads other than mix joined by +"));
        }
        let sizes = parameters.inner(name, names.len() as u64);
        programs.extend(Workload::named(name, &sizes)?.programs);
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
    fn mistakes_are_named() {
        for (setting, wanted) in [
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

// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is written where for a set-up: two kernel threads, each with one scheme. Pure.

use terrace_sys::zones::Zone;

use super::Mode;
use super::monitoring::watch;
use crate::kdamond::SAMPLES;

/// Most bytes that a scheme moves in a second: the published 200 MB, though this machine's time is dilated.
const BYTES_PER_S: u64 = 200_000_000;
/// The published goals, in 1/10,000: so much of the fast node shall be free, and so much used.
const FREE: u64 = 50;
const USED: u64 = 9_970;
/// A region is hot from this many on, 5 % of them as published, and cold with none.
const HOT_SAMPLES: u64 = 1;
/// How often our schemes act and their quotas are tuned, us. A quota begins at one byte and at most doubles each time: at the
/// published second it takes half a minute to do anything.
const APPLY_US: u64 = 100_000;
/// The published second.
const PUBLISHED_APPLY_US: u64 = 1_000_000;

/// What the threads are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Watches the fast node, moves what is cold down.
    Down,
    /// Watches the slow node, moves what is hot up.
    Up,
}

impl Way {
    pub(super) const BOTH: [Self; 2] = [Self::Down, Self::Up];

    /// Its thread's number.
    pub(super) const fn thread(self) -> usize {
        match self {
            Self::Down => 0,
            Self::Up => 1,
        }
    }

    const fn goal(self) -> u64 {
        match self {
            Self::Down => FREE,
            Self::Up => USED,
        }
    }
}

/// A value for a file below DAMON's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) path: String,
    pub(super) value: String,
    /// What the kernel lacks where it does not take it.
    pub(super) lacks: &'static str,
}

/// The two nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiers {
    pub(super) fast: usize,
    pub(super) slow: usize,
}

/// The goal's directory of a way, below DAMON's.
pub(super) fn goal_directory(way: Way) -> String {
    format!("{}/contexts/0/schemes/0/quotas/goals/0", way.thread())
}

/// All of it, in the order in which it has to be written.
pub(super) fn settings(mode: Mode, tiers: Tiers, zones: &[Zone]) -> Vec<Setting> {
    let mut list = List(Vec::new());
    list.add("nr_kdamonds", 2, "DAMON's sysfs interface");
    for way in Way::BOTH {
        watch(&mut list, mode, way, tiers, zones);
        scheme(&mut list, mode, way, tiers);
        filter(&mut list, mode, way);
    }
    list.0
}

/// As it grows.
pub(super) struct List(Vec<Setting>);

impl List {
    pub(super) fn add(
        &mut self,
        path: impl Into<String>,
        value: impl std::fmt::Display,
        lacks: &'static str,
    ) {
        let (path, value) = (path.into(), value.to_string());
        self.0.push(Setting { path, value, lacks });
    }
}

/// What is done with what.
fn scheme(list: &mut List, mode: Mode, way: Way, tiers: Tiers) {
    let thread = way.thread();
    let at = |path: &str| format!("{thread}/contexts/0/schemes/{path}");
    let migration = "the actions migrate_hot and migrate_cold of DAMON's schemes (Linux 6.11)";
    list.add(at("nr_schemes"), 1, "DAMON's schemes");
    let (action, target) = match way {
        Way::Down => ("migrate_cold", tiers.slow),
        Way::Up => ("migrate_hot", tiers.fast),
    };
    list.add(at("0/action"), action, migration);
    list.add(at("0/target_nid"), target, migration);
    let apply_us = if mode == Mode::Auto {
        PUBLISHED_APPLY_US
    } else {
        APPLY_US
    };
    list.add(
        at("0/apply_interval_us"),
        apply_us,
        "an interval of its own for a scheme (Linux 6.7)",
    );
    let (least, most) = match way {
        Way::Down => (0, 0),
        Way::Up => (HOT_SAMPLES, SAMPLES),
    };
    let pattern = |path: &str| at(&format!("0/access_pattern/{path}"));
    for (path, value) in [
        ("sz/max", u64::MAX),
        ("sz/min", 0),
        ("nr_accesses/max", most),
        ("nr_accesses/min", least),
        ("age/max", u64::from(u32::MAX)),
        ("age/min", 0),
    ] {
        list.add(pattern(path), value, "DAMON's schemes");
    }
    quota(list, mode, way, tiers, apply_us);
}

/// How much.
fn quota(list: &mut List, mode: Mode, way: Way, tiers: Tiers, every_us: u64) {
    let thread = way.thread();
    let at = |path: &str| format!("{thread}/contexts/0/schemes/0/quotas/{path}");
    let goals = "goals of DAMON's quotas (Linux 6.8)";
    list.add(at("reset_interval_ms"), every_us / 1_000, "DAMON's quotas");
    list.add(
        at("bytes"),
        BYTES_PER_S * every_us / 1_000_000,
        "DAMON's quotas",
    );
    list.add(at("goals/nr_goals"), 1, goals);
    let goal = goal_directory(way);
    let metric = match (mode, way) {
        (Mode::Auto, Way::Down) => "node_mem_free_bp",
        (Mode::Auto, Way::Up) => "node_mem_used_bp",
        _ => "user_input",
    };
    let of_node = "DAMON's goals of a node's memory (Linux 6.16)";
    let lacks = if mode == Mode::Auto { of_node } else { goals };
    list.add(format!("{goal}/target_metric"), metric, lacks);
    list.add(format!("{goal}/target_value"), way.goal(), goals);
    if mode == Mode::Auto {
        list.add(format!("{goal}/nid"), tiers.fast, of_node);
    }
}

/// Page by page, only what was not used lately goes down, and only what was goes up.
fn filter(list: &mut List, mode: Mode, way: Way) {
    let thread = way.thread();
    let at = |path: &str| format!("{thread}/contexts/0/schemes/0/filters/{path}");
    let young = "the filter for young pages of DAMON's schemes (Linux 6.10)";
    list.add(at("nr_filters"), 1, young);
    list.add(at("0/type"), "young", young);
    match (mode, way) {
        (_, Way::Down) => list.add(at("0/matching"), "Y", young),
        // As published. Kernels before 6.14 can only reject what does not match, which comes to the same.
        (Mode::Auto, Way::Up) => {
            list.add(at("0/matching"), "Y", young);
            list.add(
                at("0/allow"),
                "Y",
                "filters of DAMON's schemes that allow (Linux 6.14)",
            );
        }
        (_, Way::Up) => list.add(at("0/matching"), "N", young),
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeId;

    use super::super::Rate;
    use super::*;

    const TIERS: Tiers = Tiers { fast: 0, slow: 1 };

    fn zones() -> Vec<Zone> {
        let zone = |node, first, count| Zone {
            node: NodeId(node),
            first,
            count,
        };
        vec![zone(0, 1, 99), zone(0, 4096, 100), zone(1, 8192, 10)]
    }

    fn value(settings: &[Setting], path: &str) -> Option<String> {
        let mut found = settings.iter().filter(|setting| setting.path == path);
        let first = found.next().map(|setting| setting.value.clone());
        assert_eq!(found.next(), None, "{path} once");
        first
    }

    fn values<const N: usize>(settings: &[Setting], paths: [&str; N]) -> [String; N] {
        paths.map(|path| value(settings, path).unwrap_or_default())
    }

    #[test]
    fn hot_goes_up_and_cold_goes_down() {
        let set = settings(Mode::At(Rate { sample_ms: 20 }), TIERS, &zones());
        let scheme = |thread: usize| {
            let at = |path: &str| value(&set, &format!("{thread}/contexts/0/schemes/0/{path}"));
            [
                at("action"),
                at("target_nid"),
                at("access_pattern/nr_accesses/min"),
                at("access_pattern/nr_accesses/max"),
                at("filters/0/matching"),
                at("quotas/goals/0/target_value"),
                at("quotas/goals/0/target_metric"),
            ]
            .map(Option::unwrap_or_default)
        };
        let down = ["migrate_cold", "1", "0", "0", "Y", "50", "user_input"];
        let up = ["migrate_hot", "0", "1", "20", "N", "9970", "user_input"];
        assert_eq!(
            (scheme(0), scheme(1)),
            (down.map(str::to_owned), up.map(str::to_owned))
        );
    }

    #[test]
    fn each_thread_watches_its_node() {
        let set = settings(Mode::At(Rate { sample_ms: 20 }), TIERS, &zones());
        let fast = [
            "0/contexts/0/targets/0/regions/nr_regions",
            "0/contexts/0/targets/0/regions/1/start",
            "0/contexts/0/targets/0/regions/1/end",
        ];
        assert_eq!(values(&set, fast), ["2", "16777216", "17186816"]);
        let slow = [
            "1/contexts/0/targets/0/regions/nr_regions",
            "1/contexts/0/targets/0/regions/0/start",
        ];
        assert_eq!(values(&set, slow), ["1", "33554432"]);
        let intervals = "1/contexts/0/monitoring_attrs/intervals";
        let [sample, aggregation] = ["sample_us", "aggr_us"]
            .map(|name| value(&set, &format!("{intervals}/{name}")).unwrap_or_default());
        assert_eq!((sample.as_str(), aggregation.as_str()), ("20000", "400000"));
    }

    #[test]
    fn a_quota_is_of_its_interval() {
        let paths = [
            "1/contexts/0/schemes/0/quotas/bytes",
            "1/contexts/0/schemes/0/quotas/reset_interval_ms",
        ];
        let ours = settings(Mode::At(Rate { sample_ms: 5 }), TIERS, &zones());
        assert_eq!(values(&ours, paths), ["20000000", "100"]);
        let published = settings(Mode::Auto, TIERS, &zones());
        assert_eq!(values(&published, paths), ["200000000", "1000"]);
    }

    #[test]
    fn the_published_one_tunes_itself_by_the_fast_node() {
        let set = settings(Mode::Auto, TIERS, &zones());
        let paths = [
            "0/contexts/0/schemes/0/quotas/goals/0/target_metric",
            "1/contexts/0/schemes/0/quotas/goals/0/target_metric",
            "1/contexts/0/schemes/0/quotas/goals/0/nid",
            "1/contexts/0/schemes/0/filters/0/allow",
            "1/contexts/0/monitoring_attrs/intervals/intervals_goal/access_bp",
        ];
        let expected = ["node_mem_free_bp", "node_mem_used_bp", "0", "Y", "400"];
        assert_eq!(values(&set, paths), expected);
    }
}

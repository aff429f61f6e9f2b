// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself. Of the heat maps ([`heat`]) it tells the buckets with pages only: most have none, and
//! a figure that is missing is 0 (docs/status.md).

use terrace_core::Figure;
use terrace_core::Measurement;
use terrace_core::Unit;

use super::heat::HeatMap;

terrace_core::figures! {
    pub(super) struct Figures {
        /// CIT threshold of base pages (3.1.1).
        cit_threshold: u64 as Microseconds,
        /// Promotion rate limit (3.1.2).
        rate_limit: u64 as BytesPerSecond,
        /// Pages on the wrong tier by the last heat maps, in percent of all (3.2.2).
        misplacement_percent: u64 as Count,
        /// Pages that thrashed in the last scan period in percent of its promotions (3.3.2).
        thrash_percent: u64 as Count,
        /// Bytes a second that entered the promotion queue in the last scan period.
        enqueue_rate: u64 as BytesPerSecond,
        /// Bytes a second that left it.
        dequeue_rate: u64 as BytesPerSecond,
        /// Pages in the promotion queue.
        queued: u64 as Count,
        /// Pages that a full queue dropped, the longest idle ones.
        queue_dropped: u64 as Count,
        /// Hint faults on pages that a faster tier is there for.
        hint_faults_slow: u64 as Count,
        /// Idle times below the threshold that made a page a candidate.
        candidates: u64 as Count,
        /// Candidates whose next idle time was not below the threshold.
        candidates_lost: u64 as Count,
        /// Pages that went to the promotion queue.
        enqueued: u64 as Count,
        /// Demoted pages that were to be promoted again within a scan period.
        thrashed: u64 as Count,
        /// Looks at the heat maps.
        heat_maps: u64 as Count,
        /// Pages that are probed for the heat maps.
        victims: u64 as Count,
        /// Free memory up to which demotion goes: the pro watermark (3.3.1).
        pro_watermark: u64 as Bytes,
        /// Base pages on active lists.
        active: u64 as Count,
        /// Base pages on inactive lists.
        inactive: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}

macro_rules! buckets {
    ($tier:literal: $($bucket:literal)+) => {
        [$(Figure {
            name: concat!("heat_", $tier, "_", $bucket),
            unit: Unit::Count,
            help: concat!("Base pages of ", $tier, " nodes in bucket ", $bucket, " of the last heat map."),
        }),+]
    };
    ($($bucket:literal)+) => {
        [buckets!("fast": $($bucket)+), buckets!("slow": $($bucket)+)]
    };
}

/// By tier and bucket (4): in i are pages with captured idle times of 2^(i-1) to 2^i ms.
static HEAT: [[Figure; 28]; 2] = buckets!(
    "00" "01" "02" "03" "04" "05" "06" "07" "08" "09" "10" "11" "12" "13"
    "14" "15" "16" "17" "18" "19" "20" "21" "22" "23" "24" "25" "26" "27"
);

/// The heat maps of the fast and the slow nodes, but for what is 0.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "pages, never negative"
)]
pub(super) fn heat(maps: &[HeatMap; 2]) -> impl Iterator<Item = Measurement> {
    let buckets = HEAT.iter().zip(maps);
    let pages = buckets.flat_map(|(figures, map)| figures.iter().zip(&map.pages));
    let whole = pages.map(|(figure, pages)| (figure, pages.round() as u64));
    whole.filter(|(_, pages)| *pages > 0)
}

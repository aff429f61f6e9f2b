// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem with page-table scans in place of samples (5.1, "PT Scan + M. Async").
//!
//! Bits are cleared and read all the time, beside the migrations; a page whose bit is set at the end of a scan
//! counts as loaded once. All else is HeMem's. It is there for what the paper shows with it: a bit says that a
//! page was used, not how often, so that many pages look hot.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Hemem;
use super::SAMPLED;
use super::params;
use super::params::Params;
use crate::Capabilities;
use crate::Preset;
use crate::preset::Colour;

/// HeMem: hot and cold lists by page-table scans.
pub static PAGE_TABLE: Preset = Preset {
    name: "hemem-page-table",
    title: "HeMem with page-table scans in place of samples",
    needs: Capabilities::ACCESSED_BITS,
    colour: Colour {
        light: "#8e7cc3",
        dark: "#cabdf0",
    },
    help: params::PAGE_TABLE_HELP,
    dilated: params::page_table_dilated,
    build: |settings, host| {
        let params = Params::read_page_table(settings)?;
        Ok(Box::new(Hemem::new(params, &host.tiers)))
    },
    ..SAMPLED
};

impl Hemem {
    /// A reading of 2 MiB at the end of a scan.
    pub(super) fn scanned(&mut self, reading: &ChunkReading<'_>) {
        if !reading.last {
            return;
        }
        let base = |page: usize| PageRef {
            pid: reading.pid,
            addr: Addr(reading.start.0 + ((page as u64) << 12)),
            size: PageSize::Base4K,
        };
        if self.params.page_size == PageSize::Huge2M || reading.huge {
            let page = PageRef {
                size: PageSize::Huge2M,
                ..base(0)
            };
            if let Some(node) = most(reading) {
                self.scanned_page(page, node, !reading.accessed.is_empty());
            }
            return;
        }
        for (node, pages) in reading.nodes {
            for number in pages.pages() {
                self.scanned_page(base(number), *node, reading.accessed.get(number));
            }
        }
    }

    fn scanned_page(&mut self, page: PageRef, node: NodeId, accessed: bool) {
        if accessed {
            self.sampled(page, node, false);
        } else {
            self.resident(page, node);
        }
    }
}

/// The node that most of a chunk's pages are on.
fn most(reading: &ChunkReading<'_>) -> Option<NodeId> {
    debug_assert!(reading.start.0.is_multiple_of(CHUNK_BYTES));
    let on = |pages: &PageBits| pages.and(&reading.present).count();
    let nodes = reading.nodes.iter();
    let most = nodes.max_by_key(|(id, pages)| (on(pages), std::cmp::Reverse(*id)));
    most.map(|(id, _)| *id)
}

// SPDX-License-Identifier: MIT OR Apache-2.0
//! `tpcc`: the rows that TPC-C's transactions touch, in an in-memory database (HeMem section 5.2.1).
//!
//! Tables with the row lengths and the numbers of rows of the specification (5.11, clauses 1.2 and 1.4),
//! for each warehouse: 10 districts of 3,000 customers (655 bytes), 100,000 rows of stock (306 bytes),
//! and orders, order lines and history (18.4 MB); 100,000 items (82 bytes) once. Customers are chosen by
//! NURand(1023), items and stock by NURand(8191), warehouses evenly. Visits for each transaction of the
//! standard mix (45 % new order, 43 % payment, 4 % each order status, delivery, stock level):
//!
//! | table | visits | of them writes |
//! | --- | --- | --- |
//! | warehouse, district | 1.8 | 73 % |
//! | item | 4.5 | 0 |
//! | stock | 12.5 (4.5 by new orders, 8 read by stock level) | 36 % |
//! | customer | 1.32 (delivery: 10 at a time) | 63 % |
//! | orders, written in order | 0.9 | all |
//! | orders, read or updated among the latest | 1.24 | 32 % |
//!
//! Orders grow: their table is a ring of 12 (paper: 16) windows, full from the beginning; one is written
//! while it and the one before are read, and the next comes after 5 s (paper: 20 s, about 0.3 GB/s).
//!
//! HeMem runs Silo with 16 threads and 16 to 1,728 warehouses, of which 864 fill its 192 GB of DRAM. Silo
//! needs three times the bytes of the specification for a warehouse; here the memory of 1,728, 384
//! GB, is filled by the specification's row lengths (5,600 warehouses). The small sizes are 2.0 of the
//! free fast memory, the same proportion; where that is less than two warehouses, all numbers of
//! rows are halved (and the masks of NURand with them) until two fit. Think time: 300 ns a visit, our
//! choice: the paper gives none.

use std::ops::Range;

use terrace_core::Nanos;

use crate::Choice;
use crate::PAGE_BYTES;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;
use crate::sizes::Shape;
use crate::workload::part;

const GIB: u64 = 1 << 30;
const THINK_NS: f64 = 300.0;

const ITEMS: u32 = 100_000;
const ITEM_MASK: u32 = 8191;
const CUSTOMERS: u32 = 3000;
const CUSTOMER_MASK: u32 = 1023;
const DISTRICTS: u32 = 10;
const ITEM_BYTES: u16 = 82;
const STOCK_BYTES: u16 = 306;
const CUSTOMER_BYTES: u16 = 655;
/// A warehouse's row and those of its districts.
const FIXED_BYTES: u64 = 89 + 10 * 95;
/// Orders (24), new orders (8, a third), ten order lines (54) and history (46), for each customer.
const ORDER_BYTES: u64 = 24 + 3 + 540 + 46;

/// Numbers of rows.
#[derive(Debug, Clone, Copy)]
struct Tables {
    warehouses: u32,
    items: u32,
    item_mask: u32,
    customers: u32,
    customer_mask: u32,
}

impl Tables {
    /// As many warehouses as fit into `bytes`; with rows halved `halvings` times.
    fn fitting(bytes: u64, halvings: u32) -> Self {
        let mut tables = Self {
            warehouses: 1,
            items: ITEMS >> halvings,
            item_mask: ITEM_MASK >> halvings,
            customers: CUSTOMERS >> halvings,
            customer_mask: CUSTOMER_MASK >> halvings,
        };
        let customers = tables.all_customers();
        let each = u64::from(tables.items) * u64::from(STOCK_BYTES)
            + customers * (u64::from(CUSTOMER_BYTES) + ORDER_BYTES)
            + FIXED_BYTES;
        // Tables begin on pages of their own: five of them.
        let common = u64::from(tables.items) * u64::from(ITEM_BYTES) + 5 * PAGE_BYTES;
        let fit = bytes.saturating_sub(common) / each;
        tables.warehouses = u32::try_from(fit).unwrap_or(u32::MAX);
        tables
    }

    fn all_customers(&self) -> u64 {
        u64::from(self.warehouses) * u64::from(DISTRICTS) * u64::from(self.customers)
    }
}

/// `tpcc`.
pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 384 * GIB, 200)?;
    let bytes = u64::from(pages) * PAGE_BYTES;
    // Halved seven times there are 23 customers in a district.
    let tables = (0..=7)
        .map(|halvings| Tables::fitting(bytes, halvings))
        .find(|tables| tables.warehouses >= 2)
        .ok_or_else(|| parameters.too_small("two warehouses"))?;
    let windows = parameters.number("windows", parameters.default(16, 12), 2, 1000)?;
    let default = Nanos(parameters.default(20, 5) * 1_000_000_000);
    let lasts = parameters.time("window_time", default)?;
    let mut next = 0;
    let mut table = |bytes: u64| -> Range<u32> {
        let first = next;
        let pages = u32::try_from(bytes.div_ceil(PAGE_BYTES)).expect("fits the working set");
        next += pages;
        first..next
    };
    let warehouses = u64::from(tables.warehouses);
    let fixed = table(warehouses * FIXED_BYTES);
    let items = table(u64::from(tables.items) * u64::from(ITEM_BYTES));
    let stock = table(warehouses * u64::from(tables.items) * u64::from(STOCK_BYTES));
    let customers = table(tables.all_customers() * u64::from(CUSTOMER_BYTES));
    let width = (pages - customers.end) / windows;
    if width == 0 {
        return Err(parameters.too_small("the windows of its orders"));
    }
    let still = [
        part(1.8, &fixed, Choice::Uniform, 73, 2),
        part(4.5, &items, tables.by_item(1, ITEM_BYTES), 0, 2),
        part(
            12.5,
            &stock,
            tables.by_item(tables.warehouses, STOCK_BYTES),
            36,
            5,
        ),
        part(1.32, &customers, tables.by_customer(), 63, 11),
    ];
    let phase = |window: u32| {
        let start = customers.end + window * width;
        let new = start..start + width;
        let before = match window {
            0 => pages - width..pages,
            _ => start - width..start,
        };
        let mut parts = still.to_vec();
        parts.push(part(0.9, &new, Choice::Sequential, 100, 10));
        parts.push(part(0.62, &new, Choice::Uniform, 32, 9));
        parts.push(part(0.62, &before, Choice::Uniform, 32, 9));
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        for part in &mut parts {
            part.weight /= sum;
        }
        Phase {
            lasts: Some(lasts),
            ..Phase::forever(parts)
        }
    };
    parameters.program(Shape {
        pages,
        threads_paper: 16,
        start: Start::FirstTouch,
        think_ns: THINK_NS,
        phases: (0..windows).map(phase).collect(),
    })
}

impl Tables {
    fn by_item(&self, groups: u32, row_bytes: u16) -> Choice {
        Choice::NuRand {
            a: self.item_mask,
            rows: self.items,
            groups,
            row_bytes,
        }
    }

    fn by_customer(&self) -> Choice {
        Choice::NuRand {
            a: self.customer_mask,
            rows: self.customers,
            groups: self.warehouses * DISTRICTS,
            row_bytes: CUSTOMER_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    #[test]
    fn the_paper_s_memory_holds_five_thousand_warehouses() {
        let tables = Tables::fitting(384 * GIB, 0);
        assert!((5500..6100).contains(&tables.warehouses), "{tables:?}");
        let halved = Tables::fitting(16 << 20, 3);
        assert_eq!((halved.items, halved.item_mask), (12_500, 1023));
    }

    #[test]
    fn orders_move_on_and_the_rest_stays() {
        let workload = Workload::named("tpcc", &Sizes::fast_free(64 << 20)).expect("known");
        let phases = &workload.programs[0].phases;
        assert_eq!(phases.len(), 12);
        for pair in phases.windows(2) {
            assert_eq!(pair[0].parts[..4], pair[1].parts[..4]);
            assert_eq!(pair[0].parts[4].pages.end, pair[1].parts[4].pages.start);
            assert_eq!(pair[1].parts[6].pages, pair[0].parts[4].pages);
        }
    }
}

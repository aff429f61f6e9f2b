// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of 1 GiB of one process's addresses: base pages in chunks of 2 MiB, huge pages, or
//! one giant page.
//!
//! An address has one page at a time: noting a page of one size forgets what overlaps it in
//! another. A [`Rank`] for each chunk and node bounds how cold its pages on that node can be, so
//! that the search for the coldest looks into few chunks. A rank is never too hot; it may be too
//! cold until somebody looks ([`Span::look`]).

use terrace_core::PageRef;
use terrace_core::PageSize;

use super::meta::Meta;

pub(super) const SPAN_SHIFT: u8 = 30;
pub(super) const CHUNK_SHIFT: u8 = 21;
const PAGE_SHIFT: u8 = 12;
/// Chunks of a span, and base pages of a chunk.
pub(super) const FAN: usize = 512;
const _: () = assert!(FAN == 511 + 1);

type Block = Box<[Meta; FAN]>;

/// How cold the pages of a chunk on one node can be at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rank {
    /// No page was last referenced earlier than that, in units of [`Meta`]'s time.
    pub(super) oldest: u32,
    /// No page of known idle time has a colder class.
    pub(super) coldest: u8,
    /// Whether the idle time of some page may be unknown.
    pub(super) unknown: bool,
    /// Whether some page may have a shadow.
    pub(super) shadow: bool,
    /// Whether there may be pages at all.
    pub(super) any: bool,
}

impl Rank {
    const EMPTY: Self = Self {
        oldest: u32::MAX,
        coldest: 0,
        unknown: false,
        shadow: false,
        any: false,
    };

    fn take_in(&mut self, meta: &Meta) {
        self.oldest = self.oldest.min(meta.last_ref);
        if meta.idle_class == u8::MAX {
            self.unknown = true;
        } else {
            self.coldest = self.coldest.max(meta.idle_class);
        }
        self.shadow |= meta.shadow();
        self.any = true;
    }
}

/// When the tracker armed a chunk's pages, those on fast nodes too: the last two times, 0 if never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Armed {
    /// In units of [`Meta`]'s time.
    pub(super) last: u32,
    pub(super) before: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Span {
    giant: Meta,
    huge: Option<Block>,
    ranks: Vec<Option<Box<[Rank; FAN]>>>,
    armed: Option<Box<[Armed; FAN]>>,
    base: [Option<Block>; FAN],
}

fn block() -> Block {
    Box::new([Meta::UNKNOWN; FAN])
}

const fn part(addr: u64, shift: u8) -> usize {
    ((addr >> shift) & 511) as usize
}

impl Span {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            giant: Meta::UNKNOWN,
            huge: None,
            ranks: Vec::new(),
            armed: None,
            base: [const { None }; FAN],
        })
    }

    /// Changes the page's entry, made where there was none. Keeps the ranks true.
    #[inline]
    pub(super) fn update<R>(&mut self, page: PageRef, change: impl FnOnce(&mut Meta) -> R) -> R {
        let chunk = part(page.addr.0, CHUNK_SHIFT);
        let (meta, chunk) = match page.size {
            PageSize::Base4K => {
                self.giant = Meta::UNKNOWN;
                if let Some(huge) = &mut self.huge {
                    huge[chunk] = Meta::UNKNOWN;
                }
                let base = self.base[chunk].get_or_insert_with(block);
                (&mut base[part(page.addr.0, PAGE_SHIFT)], chunk)
            }
            PageSize::Huge2M => {
                self.giant = Meta::UNKNOWN;
                self.base[chunk] = None;
                (&mut self.huge.get_or_insert_with(block)[chunk], chunk)
            }
            PageSize::Giant1G => {
                if self.huge.is_some() || self.base.iter().any(Option::is_some) {
                    *self = *Self::new();
                }
                (&mut self.giant, 0)
            }
        };
        // On a copy: one load and one store of the whole, else the processor waits for the parts.
        let mut changed = *meta;
        let result = change(&mut changed);
        *meta = changed;
        self.take_in(chunk, changed);
        result
    }

    /// Changes the entry that [`Span::get`] gives. Keeps the ranks true.
    pub(super) fn change<R>(
        &mut self,
        page: PageRef,
        change: impl FnOnce(&mut Meta) -> R,
    ) -> Option<R> {
        let meta = self.get_mut(page)?;
        let mut changed = *meta;
        let result = change(&mut changed);
        *meta = changed;
        let giant = self.giant.is_known();
        let chunk = if giant {
            0
        } else {
            part(page.addr.0, CHUNK_SHIFT)
        };
        self.take_in(chunk, changed);
        Some(result)
    }

    #[inline]
    fn take_in(&mut self, chunk: usize, meta: Meta) {
        if meta.is_known() {
            let node = usize::from(meta.node);
            if let Some(Some(ranks)) = self.ranks.get_mut(node) {
                ranks[chunk].take_in(&meta);
            } else {
                self.first_on_node(node)[chunk].take_in(&meta);
            }
        }
    }

    #[cold]
    fn first_on_node(&mut self, node: usize) -> &mut [Rank; FAN] {
        if self.ranks.len() <= node {
            self.ranks.resize_with(node + 1, || None);
        }
        self.ranks[node].get_or_insert_with(|| Box::new([Rank::EMPTY; FAN]))
    }

    /// The chunks of a range of offsets were armed. A part of a chunk counts as the whole: the rest
    /// of it is armed before or right after.
    pub(super) fn arm(&mut self, range: std::ops::Range<u64>, unit: u32) {
        let armed = self
            .armed
            .get_or_insert_with(|| Box::new([Armed::default(); FAN]));
        for armed in &mut armed[part(range.start, CHUNK_SHIFT)..=part(range.end - 1, CHUNK_SHIFT)] {
            if armed.last != unit {
                armed.before = armed.last;
                armed.last = unit;
            }
        }
    }

    /// When a chunk was armed.
    pub(super) fn armed(&self, chunk: usize) -> Armed {
        self.armed
            .as_ref()
            .map_or_else(Armed::default, |armed| armed[chunk])
    }

    /// When the chunk of a page was armed; a giant page counts to the first.
    pub(super) fn armed_of(&self, page: PageRef) -> Armed {
        match page.size {
            PageSize::Giant1G => self.armed(0),
            _ => self.armed(part(page.addr.0, CHUNK_SHIFT)),
        }
    }

    /// The entry of the page or, if a larger page is known there, of that.
    pub(super) fn get(&self, page: PageRef) -> Option<&Meta> {
        let chunk = part(page.addr.0, CHUNK_SHIFT);
        if page.size == PageSize::Base4K
            && let Some(base) = &self.base[chunk]
        {
            return Some(&base[part(page.addr.0, PAGE_SHIFT)]);
        }
        let huge = self.huge.as_ref().map(|huge| &huge[chunk]);
        match (page.size, huge) {
            (PageSize::Giant1G, _) => Some(&self.giant),
            (_, Some(huge)) if huge.is_known() => Some(huge),
            _ => self.giant.is_known().then_some(&self.giant),
        }
    }

    /// As [`Span::get`].
    pub(super) fn get_mut(&mut self, page: PageRef) -> Option<&mut Meta> {
        let chunk = part(page.addr.0, CHUNK_SHIFT);
        if page.size == PageSize::Base4K
            && let Some(base) = &mut self.base[chunk]
        {
            return Some(&mut base[part(page.addr.0, PAGE_SHIFT)]);
        }
        let huge = self.huge.as_mut().map(|huge| &mut huge[chunk]);
        match (page.size, huge) {
            (PageSize::Giant1G, _) => Some(&mut self.giant),
            (_, Some(huge)) if huge.is_known() => Some(huge),
            _ => self.giant.is_known().then_some(&mut self.giant),
        }
    }

    /// The known pages of a chunk: offset in the span, size, entry. The giant page counts to the
    /// first chunk.
    pub(super) fn known(&self, chunk: usize) -> impl Iterator<Item = (u64, PageSize, &Meta)> {
        let at = (chunk as u64) << CHUNK_SHIFT;
        let giant = (chunk == 0).then_some((0, PageSize::Giant1G, &self.giant));
        let huge = self.huge.as_ref();
        let huge = huge.map(|huge| (at, PageSize::Huge2M, &huge[chunk]));
        let base = self.base[chunk].iter().flat_map(move |base| {
            (0_u64..)
                .zip(base.iter())
                .map(move |(n, meta)| (at + (n << PAGE_SHIFT), PageSize::Base4K, meta))
        });
        let all = giant.into_iter().chain(huge).chain(base);
        all.filter(|(_, _, meta)| meta.is_known())
    }

    /// The ranks of the chunks on a node.
    pub(super) fn ranks(&self, node: u8) -> Option<&[Rank; FAN]> {
        self.ranks.get(usize::from(node))?.as_deref()
    }

    /// Shows every page of a chunk that is on the node, and makes its rank exact; gives it.
    pub(super) fn look(&mut self, chunk: usize, node: u8, mut see: impl FnMut(&Meta)) -> Rank {
        let mut rank = Rank::EMPTY;
        let larger = (chunk == 0).then_some(&self.giant).into_iter();
        let larger = larger.chain(self.huge.as_ref().map(|huge| &huge[chunk]));
        let base = self.base[chunk].iter().flat_map(|base| base.iter());
        for meta in larger.chain(base).filter(|meta| meta.node == node) {
            rank.take_in(meta);
            see(meta);
        }
        if let Some(Some(ranks)) = self.ranks.get_mut(usize::from(node)) {
            ranks[chunk] = rank;
        }
        rank
    }

    /// Forgets the pages that overlap a range of offsets in the span; gives whether none is left.
    pub(super) fn forget(&mut self, range: std::ops::Range<u64>) -> bool {
        self.giant = Meta::UNKNOWN;
        let chunks = part(range.start, CHUNK_SHIFT)..=part(range.end - 1, CHUNK_SHIFT);
        for chunk in chunks {
            let start = (chunk as u64) << CHUNK_SHIFT;
            if let Some(huge) = &mut self.huge {
                huge[chunk] = Meta::UNKNOWN;
            }
            if range.start <= start && start + (1 << CHUNK_SHIFT) <= range.end {
                self.base[chunk] = None;
            } else if let Some(base) = &mut self.base[chunk] {
                for (at, meta) in (start..).step_by(1 << PAGE_SHIFT).zip(base.iter_mut()) {
                    // Any overlap counts: an unmapping is a whole number of pages.
                    if at < range.end && range.start < at + (1 << PAGE_SHIFT) {
                        *meta = Meta::UNKNOWN;
                    }
                }
                if !base.iter().any(Meta::is_known) {
                    self.base[chunk] = None;
                }
            }
        }
        self.base.iter().all(Option::is_none)
            && !self.huge.iter().any(|huge| huge.iter().any(Meta::is_known))
    }

    /// Bytes it takes, without what the allocator adds.
    pub(super) fn bytes(&self) -> usize {
        let blocks = self.base.iter().flatten().count() + usize::from(self.huge.is_some());
        let ranks = self.ranks.iter().flatten().count() * size_of::<[Rank; FAN]>();
        let list = self.ranks.capacity() * size_of::<Option<Box<[Rank; FAN]>>>();
        let armed = self.armed.iter().count() * size_of::<[Armed; FAN]>();
        size_of::<Self>() + blocks * size_of::<[Meta; FAN]>() + ranks + armed + list
    }
}

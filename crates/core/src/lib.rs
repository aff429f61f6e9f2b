//! Words of the domain: addresses, page sizes, nodes, tiers, time.

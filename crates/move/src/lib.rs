//! Movers: how pages change their node.

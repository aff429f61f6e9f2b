//! Messages between supervisor, agent and command line, versioned.

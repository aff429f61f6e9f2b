// SPDX-License-Identifier: MIT OR Apache-2.0
//! Talking to the memory model from inside the guest: start, stop, mark.
//!
//! Each is one instruction that does nothing on any x86-64 processor (an eight-byte `nopl` with a
//! displacement of our own) and that the QEMU plugin recognises (`eval/lab/plugin/hook.c`). Outside the
//! lab, and on other processors, the calls have no effect.
//!
//! A mark puts a line into the time series with the counters of that very moment. A workload that
//! writes its progress as marks has it lined up with the access counts, whatever the guest's clock.

/// Longest text of a mark; more is cut off.
pub const MARK_BYTES: usize = 240;

/// Counting and delaying begin.
pub fn start() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op without operands: it reads and writes nothing.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0xe1, 0xac, 0x55, 0x7e",
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Counting and delaying end.
pub fn stop() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as in `start`.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0xe2, 0xac, 0x55, 0x7e",
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Writes `text` with the present counters into the time series.
pub fn mark(text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(MARK_BYTES)];
    // The emulator reads the text through the guest's page table: it must be present.
    let touched: u8 = bytes.iter().fold(0, |sum, byte| sum ^ byte);
    std::hint::black_box(touched);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op for the processor. The emulator reads `bytes`, which outlives the
    // instruction, and writes nothing.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0xe3, 0xac, 0x55, 0x7e",
            in("rax") bytes.as_ptr(),
            in("rdx") bytes.len(),
            options(readonly, nostack, preserves_flags)
        );
    }
}

/// From the next start on, what code at these addresses does counts as a tiering system's: its misses
/// apart from the programs', its writes as copies. Of all processes: the caller makes sure that no other has code there.
pub fn tiering(code: std::ops::Range<u64>) {
    let (start, length) = (code.start, code.end.saturating_sub(code.start));
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op for the processor; the emulator reads the two registers.
    unsafe {
        std::arch::asm!(
            ".byte 0x0f, 0x1f, 0x84, 0x00, 0xe5, 0xac, 0x55, 0x7e",
            in("rax") start,
            in("rdx") length,
            options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (start, length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_outside_the_lab() {
        start();
        mark("a mark");
        mark(&"x".repeat(MARK_BYTES * 2));
        tiering(0x1000..0x2000);
        stop();
    }
}

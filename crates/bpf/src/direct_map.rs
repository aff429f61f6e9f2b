// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the kernel maps all memory (`page_offset_base`), by the kernel's word.
//!
//! `/proc/kcore` is the kernel's memory as a core file. The segments of its headers that have a physical address
//! are the direct map, and the kernel's text (fs/proc/kcore.c, since Linux 4.12). Only the headers are read. It
//! takes CAP_SYS_RAWIO and `CONFIG_PROC_KCORE`. (`/proc/kallsyms` says it, too, among the names of all symbols: to
//! read them was a third of Terrace's start.)

use std::fs::File;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::elf::PT_LOAD;
use object::elf::ProgramHeader64;
use object::read::elf::FileHeader;
use object::read::elf::ProgramHeader;

const CORE: &str = "/proc/kcore";
/// Where the kernel's own text is mapped, above all direct maps (Documentation/arch/x86/x86_64/mm.rst).
const TEXT: u64 = 0xffff_ffff_8000_0000;
/// The upper half of addresses is the kernel's.
const KERNEL: u64 = 1 << 63;

/// Where physical address 0 is mapped; none where the kernel does not say.
pub(crate) fn said() -> Option<u64> {
    let core = File::open(CORE).ok()?;
    let mut bytes = vec![0; size_of::<FileHeader64<LittleEndian>>()];
    core.read_exact_at(&mut bytes, 0).ok()?;
    // What is behind the headers is memory.
    let end = end_of_headers(&bytes)?;
    bytes.resize(end, 0);
    core.read_exact_at(&mut bytes, 0).ok()?;
    base(&bytes)
}

fn end_of_headers(bytes: &[u8]) -> Option<usize> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let one = size_of::<ProgramHeader64<LittleEndian>>();
    let all = one * usize::from(header.e_phnum.get(LittleEndian));
    usize::try_from(header.e_phoff.get(LittleEndian))
        .ok()?
        .checked_add(all)
        .filter(|end| *end <= 1 << 23)
}

/// By the headers of such a core file.
fn base(bytes: &[u8]) -> Option<u64> {
    let header = FileHeader64::<LittleEndian>::parse(bytes).ok()?;
    let headers = header.program_headers(LittleEndian, bytes).ok()?;
    headers
        .iter()
        .filter(|segment| segment.p_type(LittleEndian) == PT_LOAD)
        .map(|segment| {
            let at: u64 = segment.p_vaddr(LittleEndian);
            (at, at.wrapping_sub(segment.p_paddr(LittleEndian)))
        })
        // Those without a physical address have -1 as theirs.
        .find(|(at, base)| (KERNEL..TEXT).contains(at) && (KERNEL..=*at).contains(base))
        .map(|(_, base)| base)
}

#[cfg(test)]
mod tests {
    use object::U16;
    use object::U32;
    use object::U64;
    use object::elf;
    use object::pod::bytes_of;
    use proptest::prelude::*;

    use super::*;

    /// A core file of these segments: their addresses and their physical ones.
    fn core(segments: &[(u64, u64)]) -> Vec<u8> {
        let e = LittleEndian;
        let short = |n: usize| u16::try_from(n).unwrap();
        let one = short(size_of::<FileHeader64<LittleEndian>>());
        let header = FileHeader64 {
            e_ident: elf::Ident {
                magic: elf::ELFMAG,
                class: elf::ELFCLASS64,
                data: elf::ELFDATA2LSB,
                version: elf::EV_CURRENT,
                os_abi: 0,
                abi_version: 0,
                padding: [0; 7],
            },
            e_type: U16::new(e, elf::ET_CORE),
            e_machine: U16::new(e, elf::EM_X86_64),
            e_version: U32::new(e, 1),
            e_entry: U64::new(e, 0),
            e_phoff: U64::new(e, u64::from(one)),
            e_shoff: U64::new(e, 0),
            e_flags: U32::new(e, 0),
            e_ehsize: U16::new(e, one),
            e_phentsize: U16::new(e, short(size_of::<ProgramHeader64<LittleEndian>>())),
            e_phnum: U16::new(e, short(segments.len())),
            e_shentsize: U16::new(e, 0),
            e_shnum: U16::new(e, 0),
            e_shstrndx: U16::new(e, 0),
        };
        let mut bytes = bytes_of(&header).to_vec();
        for (at, physical) in segments {
            let segment = ProgramHeader64 {
                p_type: U32::new(e, PT_LOAD),
                p_flags: U32::new(e, 7),
                p_offset: U64::new(e, 0x1000),
                p_vaddr: U64::new(e, *at),
                p_paddr: U64::new(e, *physical),
                p_filesz: U64::new(e, 0x1000),
                p_memsz: U64::new(e, 0x1000),
                p_align: U64::new(e, 0x1000),
            };
            bytes.extend(bytes_of(&segment));
        }
        bytes
    }

    const NONE: u64 = u64::MAX;
    /// vmalloc, text, modules, vmemmap; then memory.
    const OTHERS: [(u64, u64); 4] = [
        (0xffff_b57c_c000_0000, NONE),
        (0xffff_ffff_9d00_0000, 0x3_1d00_0000),
        (0xffff_ffff_c000_0000, NONE),
        (0xffff_f14c_0400_0000, NONE),
    ];

    #[test]
    fn memory_alone_is_the_direct_map() {
        let mut segments = OTHERS.to_vec();
        assert_eq!(base(&core(&segments)), None);
        segments.push((0xffff_8d42_8000_1000, 0x1000));
        segments.push((0xffff_8d43_8000_0000, 0x1_0000_0000));
        let bytes = core(&segments);
        assert_eq!(end_of_headers(&bytes[..64]), Some(bytes.len()));
        assert_eq!(base(&bytes), Some(0xffff_8d42_8000_0000));
    }

    proptest! {
        /// Whatever the bytes are.
        #[test]
        fn fuzz_core(
            at in any::<u64>(),
            physical in any::<u64>(),
            changes in prop::collection::vec((0_usize..400, any::<u8>()), 0..6),
            keep in 0_usize..400,
        ) {
            let mut bytes = core(&[OTHERS[0], (at, physical)]);
            for (index, byte) in changes {
                let count = bytes.len();
                bytes[index % count] = byte;
            }
            bytes.truncate(keep);
            if let Some(base) = base(&bytes) {
                prop_assert!(base >= KERNEL);
            }
            let _ = end_of_headers(&bytes);
        }
    }
}

//! A file straight from and to shared memory: node 0 makes numbers, the last node writes them to a file and reads the
//! file back into other shared memory, node 0 checks. Needs no care for pages under `comem run`, which preloads
//! `libcomem_wrap.so`.
//!
//! ```sh
//! comem run -n 2 file_io /tmp/numbers
//! ```

use comem::heap::{Home, PageSlice, RegionOptions};
use std::fs::File;
use std::io::{Read, Write};

const NUMBERS: usize = 3_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "/tmp/comem-file-io".to_string());
    let comem = comem::start()?;
    let options = RegionOptions { home: Home::On(comem::NodeId(0)), ..RegionOptions::default() };
    let numbers: PageSlice<u8> = comem.page_slice(NUMBERS, &options)?;
    let copy: PageSlice<u8> = comem.page_slice(NUMBERS, &options)?;
    let last = comem.threads() - 1;
    comem.parallel(|t| {
        if t.id() == 0 {
            (0..NUMBERS).for_each(|i| numbers.set(i, (i % 251) as u8));
        }
        t.barrier();
        if t.id() == last {
            // SAFETY: between these barriers no other thread uses either slice.
            let (from, to) = unsafe { (numbers.as_slice(), copy.part_mut(0..NUMBERS)) };
            let result = File::create(&path)
                .and_then(|mut file| file.write_all(from))
                .and_then(|()| File::open(&path))
                .and_then(|mut file| file.read_exact(to));
            if let Err(error) = result {
                println!("{error}");
            }
        }
        t.barrier();
        if t.id() == 0 {
            let wrong = (0..NUMBERS).filter(|i| copy.get(*i) != (i % 251) as u8).count();
            println!("{wrong} wrong of {NUMBERS}");
        }
    });
    comem.finish()?;
    Ok(())
}

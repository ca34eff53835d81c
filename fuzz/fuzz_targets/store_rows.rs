#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidemill_fuzz_targets::store_rows(bytes));

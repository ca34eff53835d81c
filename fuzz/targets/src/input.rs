//! Takes values off the front of a fuzzer's bytes. At their end everything is zero or empty.

/// What is left of the bytes.
#[derive(Debug)]
pub(crate) struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    pub(crate) fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// So many bytes, fewer at the end.
    pub(crate) fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Bytes behind their length: up to 64 KiB.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = u16::from_le_bytes([self.byte(), self.byte()]);
        self.bytes(length.into())
    }

    /// A number: mostly a small one or one at the end of its range, where mistakes are.
    pub(crate) fn number(&mut self) -> u64 {
        match self.byte() {
            kind @ 0..=0xbf => kind.into(),
            0xc0..=0xdf => u16::from_le_bytes([self.byte(), self.byte()]).into(),
            0xe0..=0xef => u64::MAX - u64::from(self.byte()),
            _ => {
                let mut bytes = [0; 8];
                let taken = self.bytes(8);
                bytes[..taken.len()].copy_from_slice(taken);
                u64::from_le_bytes(bytes)
            }
        }
    }
}

//! Choices that are made from a fuzzer's bytes.

/// Bytes that are read from left to right. After the last byte, all further bytes are 0.
pub struct Bytes<'a> {
    left: &'a [u8],
    is_overrun: bool,
}

impl<'a> Bytes<'a> {
    /// Returns the choices that these bytes make.
    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes { left: bytes, is_overrun: false }
    }

    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }

    /// Returns whether a byte was read after the last one.
    pub fn is_overrun(&self) -> bool {
        self.is_overrun
    }

    pub fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.left.split_first() else {
            self.is_overrun = true;
            return 0;
        };
        self.left = rest;
        *byte
    }

    /// Returns a number below `bound`, which is 256 at most.
    pub fn below(&mut self, bound: u16) -> usize {
        usize::from(u16::from(self.byte()) % bound)
    }

    pub fn number(&mut self, bound: u16) -> u64 {
        self.below(bound) as u64
    }

    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.byte() as usize % choices.len()].clone()
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }
}

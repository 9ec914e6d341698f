//! The buffers for encoded bytes: a vector, or the stack if they are few.

/// Takes bytes one after the other.
pub(crate) trait Sink {
    /// Appends a byte.
    fn put(&mut self, byte: u8);

    /// Appends bytes.
    fn put_all(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    fn put(&mut self, byte: u8) {
        self.push(byte);
    }

    fn put_all(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Enough bytes for nearly all effects: those whose owner and request id are UUIDs, or texts of about that length.
pub(crate) const SHORT: usize = 96;

/// Keeps the bytes on the stack if they are at most [`SHORT`], and counts them.
pub(crate) struct Short<'a> {
    place: &'a mut [u8; SHORT],
    len: usize,
}

impl<'a> Short<'a> {
    /// Returns a sink without bytes.
    pub(crate) fn new(place: &'a mut [u8; SHORT]) -> Short<'a> {
        Short { place, len: 0 }
    }

    /// Returns the bytes; `None` if they were too many.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        self.place.get(..self.len)
    }
}

impl Sink for Short<'_> {
    #[inline]
    fn put(&mut self, byte: u8) {
        if let Some(place) = self.place.get_mut(self.len) {
            *place = byte;
        }
        self.len += 1;
    }

    #[inline]
    fn put_all(&mut self, bytes: &[u8]) {
        let end = self.len + bytes.len();
        if let Some(place) = self.place.get_mut(self.len..end) {
            place.copy_from_slice(bytes);
        }
        self.len = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_sink_returns_the_bytes_only_if_all_fit() {
        for len in 0..2 * SHORT {
            let bytes: Vec<u8> = (0..=255).cycle().take(len).collect();
            let places = &mut [[0; SHORT]; 2];
            let [one, other] = places;
            let (mut one_by_one, mut at_once, mut vector) = (Short::new(one), Short::new(other), Vec::new());
            bytes.iter().for_each(|byte| one_by_one.put(*byte));
            at_once.put_all(&bytes);
            vector.put_all(&bytes);
            let kept = (len <= SHORT).then_some(&*bytes);
            assert_eq!((one_by_one.bytes(), at_once.bytes(), &*vector), (kept, kept, &*bytes));
        }
    }
}

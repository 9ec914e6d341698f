//! The owner of a hold.

use core::fmt;
use core::ops::Deref;

/// The holder of a lock: 1 to [`Owner::MAX_LEN`] bytes chosen by the client. One owner is one thread of control.
///
/// A UUID in its usual form (36 characters, lower case, hyphens) is kept as its 16 bytes, but shown as the client sent
/// it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    /// The 16 bytes as two big-endian numbers, which are cheap to copy and to compare.
    Uuid([u64; 2]),
    Bytes(Box<[u8]>),
}

impl Owner {
    /// The longest owner in bytes.
    pub const MAX_LEN: usize = 1024;

    /// Returns an owner of these bytes, unless there are none or too many.
    pub fn new(bytes: &[u8]) -> Option<Owner> {
        if bytes.is_empty() || bytes.len() > Self::MAX_LEN {
            return None;
        }
        Some(Owner(parse_uuid(bytes).map_or_else(|| Form::Bytes(bytes.into()), Form::Uuid)))
    }

    /// Returns the owner whose text is the UUID of these bytes.
    pub fn from_uuid(bytes: [u8; 16]) -> Owner {
        let number = u128::from_be_bytes(bytes);
        #[allow(clippy::cast_possible_truncation, reason = "each takes its half")]
        let halves = [(number >> 64) as u64, number as u64];
        Owner(Form::Uuid(halves))
    }

    /// Returns the 16 bytes, if the owner is a UUID.
    pub fn as_uuid(&self) -> Option<[u8; 16]> {
        match &self.0 {
            Form::Uuid(halves) => Some(uuid_bytes(*halves)),
            Form::Bytes(_) => None,
        }
    }

    /// Returns the bytes the client chose.
    pub fn text(&self) -> OwnerText<'_> {
        match &self.0 {
            Form::Uuid(halves) => OwnerText::Uuid(format_uuid(&uuid_bytes(*halves))),
            Form::Bytes(bytes) => OwnerText::Bytes(bytes),
        }
    }

    /// Returns the bytes on the heap beside the owner itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Uuid(_) => 0,
            Form::Bytes(bytes) => bytes.len(),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.text().escape_ascii())
    }
}

/// The bytes of an [`Owner`] as the client sent them.
#[derive(Debug)]
pub enum OwnerText<'a> {
    /// Formatted from the 16 bytes.
    Uuid([u8; 36]),
    /// The stored bytes.
    Bytes(&'a [u8]),
}

impl Deref for OwnerText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            OwnerText::Uuid(text) => text,
            OwnerText::Bytes(bytes) => bytes,
        }
    }
}

const HYPHENS: [usize; 4] = [8, 13, 18, 23];

/// Reads eight digits at a time, without a branch for each: every command reads an owner.
fn parse_uuid(text: &[u8]) -> Option<[u64; 2]> {
    let text: &[u8; 36] = text.try_into().ok()?;
    if HYPHENS.iter().any(|at| text.get(*at) != Some(&b'-')) {
        return None;
    }
    let eight = |at: usize| text.get(at..)?.first_chunk().map(|digits| u64::from_be_bytes(*digits));
    let four = |at: usize| text.get(at..)?.first_chunk().map(|digits| u64::from(u32::from_be_bytes(*digits)));
    let ((a, a_wrong), (b, b_wrong)) = (number_of_digits(eight(0)?), number_of_digits((four(9)? << 32) + four(14)?));
    let ((c, c_wrong), (d, d_wrong)) = (number_of_digits((four(19)? << 32) + four(24)?), number_of_digits(eight(28)?));
    let wrong = (a_wrong | b_wrong | c_wrong | d_wrong) & every(0x80);
    (wrong == 0).then_some([(a << 32) + b, (c << 32) + d])
}

/// Returns the number of eight lower case hexadecimal digits, and a second number in which the highest bit of a byte is
/// set if there is another character.
fn number_of_digits(digits: u64) -> (u64, u64) {
    // Letters have this bit: `a` is 0x61, `0` is 0x30.
    let letters = (digits >> 6) & every(1);
    // `0` to `9` become 0 to 9, `a` to `f` 4 to 9, all other ASCII characters more. If all are ASCII, no byte carries
    // into the next one.
    let under_ten = (digits.wrapping_sub(letters * 0x31) ^ every(b'0')).wrapping_add(letters * 4);
    let wrong = under_ten.wrapping_add(every(0x80 - 10)) | digits;
    let halves = under_ten.wrapping_add(letters * 6);
    // Each product moves the lower of two neighbours next to the upper one. The mask drops the other bits.
    let bytes = halves.wrapping_mul(0x110) & 0xff00_ff00_ff00_ff00;
    let pairs = bytes.wrapping_mul(0x101) & 0xffff_0000_ffff_0000;
    (pairs.wrapping_mul(0x1_0001) >> 32, wrong)
}

/// Returns eight times this byte.
const fn every(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

fn uuid_bytes([first, second]: [u64; 2]) -> [u8; 16] {
    ((u128::from(first) << 64) + u128::from(second)).to_be_bytes()
}

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

fn format_uuid(bytes: &[u8; 16]) -> [u8; 36] {
    let digit = |nibble: u8| HEX_DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0');
    let mut nibbles = bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    let mut text = [b'-'; 36];
    for (at, place) in text.iter_mut().enumerate() {
        if !HYPHENS.contains(&at) {
            *place = nibbles.next().unwrap_or(b'0');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_kept_in_16_bytes_and_shown_as_it_came() {
        let text = b"0f8fad5b-d9cb-469f-a165-70867728950e";
        let owner = Owner::new(text).unwrap();
        assert!(owner.as_uuid().is_some());
        assert_eq!(owner.heap_bytes(), 0);
        assert_eq!(&*owner.text(), text);
    }

    /// Different texts are different owners: only a text that the 16 bytes reproduce is kept as a UUID.
    #[test]
    fn every_byte_in_every_place_of_a_uuid_is_shown_as_it_came() {
        for (at, byte) in (0..36).flat_map(|at| (0..=255).map(move |byte| (at, byte))) {
            let mut text = *b"0f8fad5b-d9cb-469f-a165-70867728950e";
            text[at] = byte;
            let owner = Owner::new(&text).unwrap();
            let is_right = if HYPHENS.contains(&at) { byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') };
            assert_eq!(owner.as_uuid().is_some(), is_right, "{byte} at {at}");
            assert_eq!(*owner.text(), text);
        }
    }

    #[test]
    fn a_text_with_two_wrong_bytes_is_no_uuid() {
        let pairs = (0..36).flat_map(|one| (0..one).map(move |other| [one, other]));
        for (places, byte) in pairs.flat_map(|places| b"gG-+/:`@\0\x10\x80\xff".map(|byte| (places, byte))) {
            let mut text = *b"00000000-0000-0000-0000-000000000000";
            places.iter().for_each(|place| text[*place] = byte);
            let is_right = byte == b'-' && places.iter().all(|place| HYPHENS.contains(place));
            let owner = Owner::new(&text).unwrap();
            assert_eq!(owner.as_uuid().is_some(), is_right, "{byte} at {places:?}");
            assert_eq!(*owner.text(), text);
        }
    }

    #[test]
    fn a_text_with_a_wrong_digit_and_a_wrong_hyphen_is_no_uuid() {
        // The last of each eight digits, together with the first hyphen: neither error hides the other.
        for at in [7, 17, 27, 35] {
            for (digit, hyphen) in (0..=255).flat_map(|digit| (0..=255).map(move |hyphen| (digit, hyphen))) {
                let mut text = *b"00000000-0000-0000-0000-000000000000";
                (text[at], text[8]) = (digit, hyphen);
                let is_right = hyphen == b'-' && matches!(digit, b'0'..=b'9' | b'a'..=b'f');
                assert_eq!(parse_uuid(&text).is_some(), is_right, "{digit} at {at}, {hyphen}");
            }
        }
    }

    #[test]
    fn a_text_that_only_resembles_a_uuid_is_kept_as_it_is() {
        for text in [
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd-9cb-469f-a165-70867728950e",
            "0f8fad5b-d9cb-469f-a165-70867728950g",
            "0f8fad5b-d9cb-469f-a165-7086772-950e",
            "0f8fad5bd9cb469fa16570867728950e",
            "0f8fad5b+d9cb+469f+a165+70867728950e",
            "----",
        ] {
            let owner = Owner::new(text.as_bytes()).unwrap();
            assert!(owner.as_uuid().is_none(), "{text}");
            assert_eq!(&*owner.text(), text.as_bytes());
            assert_eq!(owner.heap_bytes(), text.len());
        }
    }

    #[test]
    fn owners_have_1_to_1024_bytes() {
        assert!(Owner::new(b"").is_none());
        assert!(Owner::new(&[0; 1024]).is_some());
        assert!(Owner::new(&[0; 1025]).is_none());
    }
}

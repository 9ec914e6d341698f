//! The parts of a payload of `DUMP`: `type, value, RDB version (2 bytes), CRC64 (8 bytes)`.

/// Returns a dump's payload without its trailer.
pub fn body(dump: &[u8]) -> Vec<u8> {
    dump[..dump.len() - 10].to_vec()
}

/// Returns a valid payload with this body, the RDB version of `like` and a correct checksum.
pub fn seal(body: &[u8], like: &[u8]) -> Vec<u8> {
    let mut dump = body.to_vec();
    dump.extend_from_slice(&like[like.len() - 10..like.len() - 8]);
    let checksum = crc64(&dump);
    dump.extend_from_slice(&checksum.to_le_bytes());
    dump
}

/// Computes the checksum of Redis: CRC-64 of Jones, reflected, no inversion.
pub fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc, _| (crc >> 1) ^ (0x95ac_9329_ac4b_c9b5 & 0_u64.wrapping_sub(crc & 1)))
    })
}

/// Replaces every occurrence of a number in fixed-size, LEB128 or zigzag LEB128 encoding. Returns how many there were.
pub fn replace_number(bytes: &mut [u8], old: u64, new: u64) -> usize {
    let ways: [fn(u64) -> Vec<u8>; 4] =
        [|n| n.to_le_bytes().to_vec(), |n| n.to_be_bytes().to_vec(), leb128, |n| leb128(n << 1)];
    ways.iter().map(|way| replace(bytes, &way(old), &way(new))).sum()
}

fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    assert_eq!(old.len(), new.len(), "numbers of one size");
    let places: Vec<_> =
        (0..bytes.len().saturating_sub(old.len() - 1)).filter(|at| bytes[*at..].starts_with(old)).collect();
    places.iter().for_each(|at| bytes[*at..*at + new.len()].copy_from_slice(new));
    places.len()
}

fn leb128(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[test]
fn checksum_is_that_of_redis() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}

//! Patterns, as Redis has them.

/// Returns whether a text matches: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a character that means itself. The number
/// of steps is limited, because nobody else is served meanwhile.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    // `back` is the pattern behind the last star, and the text that the star has not taken. On a difference, the star
    // takes one byte more, and the comparison goes on from there.
    let (mut pattern, mut text) = (pattern, text);
    let mut back: Option<(&[u8], &[u8])> = None;
    let mut budget = MOST_STEPS * (pattern.len() + text.len() + 1);
    while budget > 0 {
        let (step, rest) = one(pattern, text);
        // The bytes of a class count as steps, too.
        budget = budget.saturating_sub(1 + pattern.len() - rest.len());
        match (step, back) {
            (Step::Star, _) => (pattern, back) = (rest, Some((rest, text))),
            (Step::Same, _) => (pattern, text) = (rest, text.get(1..).unwrap_or_default()),
            (Step::End, _) => return true,
            (Step::Differs, Some((behind, [_, left @ ..]))) => {
                (pattern, text, back) = (behind, left, Some((behind, left)))
            }
            (Step::Differs, _) => return false,
        }
    }
    false
}

/// How many steps a comparison may take for each byte of the pattern and of the text. A pattern that needs more does
/// not match. More steps are needed only if parts of the pattern repeat, and the text repeats them, too.
const MOST_STEPS: usize = 32;

enum Step {
    Star,
    /// The next byte of the text is one that the pattern has.
    Same,
    /// The text and the pattern are at their end.
    End,
    Differs,
}

/// Compares the next byte of the text with the pattern. Returns the rest of the pattern, too.
fn one<'p>(pattern: &'p [u8], text: &[u8]) -> (Step, &'p [u8]) {
    let found = |is_it: bool, rest: &'p [u8]| (if is_it { Step::Same } else { Step::Differs }, rest);
    match (pattern, text.first()) {
        ([], None) => (Step::End, pattern),
        ([b'*', rest @ ..], _) => (Step::Star, rest),
        (_, None) | ([], _) => (Step::Differs, pattern),
        ([b'?', rest @ ..], Some(_)) => (Step::Same, rest),
        ([b'[', rest @ ..], Some(byte)) => {
            let (is_in, rest) = class(rest, *byte);
            found(is_in, rest)
        }
        ([b'\\', escaped, rest @ ..], Some(byte)) => found(escaped == byte, rest),
        ([plain, rest @ ..], Some(byte)) => found(plain == byte, rest),
    }
}

/// Returns whether a byte is in the class after `[`, and the rest of the pattern after the class.
fn class(rest: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_not, mut rest) = match rest {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut is_in = false;
    loop {
        match rest {
            [] => return (is_in != is_not, &[]),
            [b']', behind @ ..] => return (is_in != is_not, behind),
            [b'\\', escaped, behind @ ..] => {
                is_in |= *escaped == byte;
                rest = behind;
            }
            [from, b'-', to, behind @ ..] if *to != b']' => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                rest = behind;
            }
            [plain, behind @ ..] => {
                is_in |= *plain == byte;
                rest = behind;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, is_match) in [
            ("", "", true),
            ("*", "", true),
            ("*", "any", true),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "axbxbxc", true),
            ("__key*__:job", "__keyspace@0__:job", true),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            (r"a\*", "a*", true),
            (r"a\*", "ab", false),
            ("[", "a", false),
            ("a", "", false),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn a_pattern_with_repeated_parts_takes_a_limited_time() {
        let (pattern, text) = (b"*a".repeat(30), vec![b'a'; 3000]);
        assert!(matches(&pattern, &text));
        assert!(!matches(&[pattern, b"b".to_vec()].concat(), &text));
        let text = vec![b'a'; 100_000];
        let (long, class) = (vec![b'a'; 50_000], vec![b'c'; 50_000]);
        let almost = [b"*".to_vec(), long, b"b".to_vec()].concat();
        let classes = [b"*[".to_vec(), class, b"]b".to_vec()].concat();
        let began = std::time::Instant::now();
        assert!(!matches(&almost, &text) && !matches(&classes, &text));
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

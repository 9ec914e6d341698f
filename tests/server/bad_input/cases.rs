//! Malformed arguments of each command, with the error that answers them.

pub const ACQUIRING: [&str; 4] = ["ACQUIRE", "RACQUIRE", "RLOCK", "WLOCK"];
const HOUR_US: i64 = 60 * 60 * 1_000_000;
const YEAR_MS: i64 = 365 * 24 * 60 * 60 * 1000;

/// The answer to a bad command.
#[derive(Clone, Copy, Debug)]
pub enum Says {
    Arity,
    Syntax,
    NotInteger,
    Expire,
    /// A lease that is too long: the error of `Expire`, or one that names the lease.
    TooLong,
    /// Not in range: Redis' words, or the message names the argument.
    Range(&'static str),
    /// A `BLOCK` of less than nothing.
    NegativeTimeout,
    /// A `BLOCK` that is no number, or too large.
    Timeout,
    Names(&'static str),
}

impl Says {
    pub fn fits(self, command: &str, error: &str) -> bool {
        let names = |word: &str| error.starts_with("ERR ") && error.to_lowercase().contains(word);
        let integer = "ERR value is not an integer or out of range: ";
        let expire = format!("ERR invalid expire time in 'dlock.{}' command: ", command.to_lowercase());
        match self {
            Self::Arity => {
                error == format!("ERR wrong number of arguments for 'dlock.{}' command", command.to_lowercase())
            }
            Self::Syntax => error.len() > "ERR syntax error: ".len() && error.starts_with("ERR syntax error: "),
            Self::NotInteger => error.starts_with(integer),
            Self::Expire => error.starts_with(&expire),
            Self::TooLong => error.starts_with(&expire) || names("lease"),
            Self::NegativeTimeout => error == "ERR timeout is negative: BLOCK",
            Self::Timeout => error == "ERR timeout is not an integer or out of range: BLOCK",
            Self::Range(word) => error.starts_with(integer) || names(word),
            Self::Names(word) => names(word),
        }
    }
}

/// A command's words after the key, and the answer.
pub type Case = (Vec<Vec<u8>>, Says);

pub fn case(words: &str, says: Says) -> Case {
    (words.split_whitespace().map(|word| word.as_bytes().to_vec()).collect(), says)
}

fn words(words: &[&[u8]], says: Says) -> Case {
    (words.iter().map(|word| word.to_vec()).collect(), says)
}

fn bad_leases(now: i64) -> Vec<Case> {
    let mut cases: Vec<Case> = [
        ("EX 0", Says::Expire),
        ("PX 0", Says::Expire),
        ("EXAT 0", Says::Expire),
        ("PXAT 0", Says::Expire),
        ("EX -1", Says::Expire),
        ("PX -1", Says::Expire),
        ("EXAT -1", Says::Expire),
        ("PXAT -1", Says::Expire),
        ("PX -9223372036854775808", Says::Expire),
        ("EXAT 1", Says::Expire),
        ("PXAT 1", Says::Expire),
        ("EX 9223372036854775807", Says::TooLong),
        ("PX 9223372036854775807", Says::TooLong),
        ("EXAT 9223372036854775807", Says::TooLong),
        ("PXAT 9223372036854775807", Says::TooLong),
        ("EX 9223372036854776", Says::TooLong),
        ("EXAT 9223372036854776", Says::TooLong),
        ("EX 31536001", Says::TooLong),
        ("PX 31536000001", Says::TooLong),
        ("PX", Says::Syntax),
        ("EX", Says::Syntax),
        ("PXAT", Says::Syntax),
        ("EXAT", Says::Syntax),
        ("PX 5000 PX 5000", Says::Syntax),
        ("PX 5000 EX 5", Says::Syntax),
        ("EX 5 px 5000", Says::Syntax),
        ("PX 5000 FOO", Says::Syntax),
        ("FOO PX 5000", Says::Syntax),
        ("FOO", Says::Syntax),
        ("5000", Says::Syntax),
        ("PX5000", Says::Syntax),
    ]
    .into_iter()
    .map(|(words, says)| case(words, says))
    .collect();
    for way in ["EX", "PX", "EXAT", "PXAT"] {
        for number in
            ["abc", "1.5", "1e3", "0x10", "+5", "9223372036854775808", "-9223372036854775809", "99999999999999999999"]
        {
            cases.push(case(&format!("{way} {number}"), Says::NotInteger));
        }
        for number in [b"".as_slice(), b" 5", b"5 ", b"5\0", b"\xff"] {
            cases.push(words(&[way.as_bytes(), number], Says::NotInteger));
        }
    }
    cases.extend([
        case(&format!("PXAT {}", now - 1), Says::Expire),
        case(&format!("EXAT {}", now / 1000 - 1), Says::Expire),
        case(&format!("PXAT {}", now + YEAR_MS + 60_000), Says::TooLong),
        case(&format!("EXAT {}", (now + YEAR_MS) / 1000 + 60), Says::TooLong),
        case(&format!("PX 5000 PXAT {}", now + 900_000), Says::Syntax),
        case(&format!("EXAT {} EX 5", now / 1000 + 900), Says::Syntax),
        words(&[b""], Says::Syntax),
        words(&[b"PX\0".as_slice(), b"5"], Says::Syntax),
    ]);
    cases
}

/// Values that are no token, after this option. An empty option stands for the argument of `CHECK`.
fn bad_tokens(option: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for (value, says) in [
        ("0", Says::Range("token")),
        ("-1", Says::Range("token")),
        ("9007199254740993", Says::Range("token")),
        ("9223372036854775807", Says::Range("token")),
        ("9223372036854775808", Says::NotInteger),
        ("abc", Says::NotInteger),
        ("1.5", Says::NotInteger),
        ("+1", Says::NotInteger),
    ] {
        cases.push(case(&format!("{option} {value}"), says));
    }
    let mut empty = case(option, Says::NotInteger);
    empty.0.push(Vec::new());
    cases.push(empty);
    cases
}

/// The same cases after an owner.
pub fn with_owner(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().map(|(words, says)| ([vec![b"a".to_vec()], words].concat(), says)).collect()
}

/// Values of `BLOCK` that are no time to wait.
fn bad_timeouts() -> Vec<Case> {
    let mut cases = vec![
        case("BLOCK -1", Says::NegativeTimeout),
        case("BLOCK -9223372036854775808", Says::NegativeTimeout),
        case("PX 5000 BLOCK -1", Says::NegativeTimeout),
        case("BLOCK 9223372036854775807", Says::Timeout),
        case("BLOCK", Says::Syntax),
        case("BLOCK 5 BLOCK 5", Says::Syntax),
        case("BLOCK 0 PX 5000 block 0", Says::Syntax),
        case("BLOCK5", Says::Syntax),
    ];
    for number in
        ["abc", "1.5", "1e3", "0x10", "+5", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "PX"]
    {
        cases.push(case(&format!("BLOCK {number}"), Says::Timeout));
    }
    for number in [b"".as_slice(), b" 5", b"5 ", b"5\0", b"\xff"] {
        cases.push(words(&[b"BLOCK", number], Says::Timeout));
    }
    cases
}

fn bad_owners() -> Vec<Case> {
    vec![words(&[b""], Says::Names("owner")), words(&[[b'o'; 1025].as_slice()], Says::Names("owner"))]
}

fn syntax(lines: &[&str]) -> Vec<Case> {
    lines.iter().map(|line| case(line, Says::Syntax)).collect()
}

pub fn acquiring(now: i64) -> Vec<Case> {
    let other_words =
        syntax(&["READ", "WRITE", "ALL", "TOKEN 5", "MINTOKEN", "MINTOKEN 5 MINTOKEN 5", "FULL", "NX", "PX 5000 READ"]);
    let mut cases = vec![case("", Says::Arity)];
    cases.extend(bad_owners());
    cases.extend(with_owner(bad_leases(now)));
    cases.extend(with_owner(bad_timeouts()));
    cases.extend(with_owner(other_words));
    cases.extend(bad_min_tokens(now));
    cases
}

pub fn release() -> Vec<Case> {
    let mut cases = vec![case("", Says::Arity)];
    cases.extend(bad_owners());
    cases.extend(with_owner(bad_tokens("TOKEN")));
    cases.extend(with_owner(bad_tokens("READ TOKEN")));
    cases.extend(with_owner(syntax(&[
        "FOO",
        "READ WRITE",
        "WRITE READ",
        "READ READ",
        "write WRITE",
        "ALL ALL",
        "READ ALL READ",
        "TOKEN",
        "TOKEN 5 TOKEN 5",
        "TOKEN 5 ALL TOKEN 6",
        "PX 5000",
        "MINTOKEN 5",
        "5",
        "READ FOO",
        "BOTH",
        "FULL",
    ])));
    cases
}

pub fn renew(now: i64) -> Vec<Case> {
    let mut cases = vec![case("", Says::Arity)];
    cases.extend(bad_owners());
    cases.extend(with_owner(bad_leases(now)));
    cases.extend(with_owner(bad_tokens("TOKEN")));
    cases.extend(bad_min_tokens(now));
    cases.extend(with_owner(vec![case(&format!("READ {} PX 5000", too_far(now)), Says::Names("token"))]));
    cases.extend(with_owner(syntax(&[
        "READ WRITE",
        "WRITE READ",
        "READ READ",
        "ALL",
        "TOKEN",
        "MINTOKEN",
        "TOKEN 5 TOKEN 5",
        "MINTOKEN 5 MINTOKEN 5",
        "TOKEN 5 MINTOKEN 5",
        "MINTOKEN 5 TOKEN 5",
        "PX 5000 READ PX 5000",
        "FULL",
    ])));
    cases
}

fn bad_min_tokens(now: i64) -> Vec<Case> {
    let mut cases = with_owner(bad_tokens("MINTOKEN"));
    cases.extend(with_owner(bad_tokens("PX 5000 MINTOKEN")));
    cases.extend(with_owner(vec![
        case(&too_far(now), Says::Names("token")),
        case("MINTOKEN 9007199254740992", Says::Names("token")),
    ]));
    cases
}

/// A token a minute further ahead of the server's clock than the largest `dlock.max-token-lead`, an hour, allows.
fn too_far(now: i64) -> String {
    format!("MINTOKEN {}", now * 1000 + HOUR_US + 60_000_000)
}

pub fn check() -> Vec<Case> {
    let mut cases = bad_tokens("");
    cases.extend([case("", Says::Arity), case("5 6", Says::Arity), case("5 6 7", Says::Arity)]);
    cases
}

pub fn info() -> Vec<Case> {
    let mut cases = syntax(&[
        "FOO",
        "OWNER",
        "OWNER a OWNER a",
        "OWNER a FULL",
        "FULL OWNER a",
        "OWNER a COUNT 5",
        "FULL FULL",
        "COUNT 5",
        "COUNT 5 FULL",
        "FULL COUNT",
        "FULL COUNT 5 COUNT 5",
        "FULL 5",
        "a",
        "FULL COUNT 5 FOO",
    ]);
    for (number, says) in [
        ("-1", Says::Range("count")),
        ("-9223372036854775808", Says::Range("count")),
        ("9223372036854775808", Says::NotInteger),
        ("abc", Says::NotInteger),
        ("1.5", Says::NotInteger),
    ] {
        cases.push(case(&format!("FULL COUNT {number}"), says));
    }
    cases.extend(bad_owners().into_iter().map(|(words, says)| ([vec![b"OWNER".to_vec()], words].concat(), says)));
    cases
}

//! Replies on the wire, and conversions of their values.

use redis::Value;

/// Returns the end of the frame that begins at `at`, or `None` if a part of it is missing.
pub fn frame_end(buffer: &[u8], at: usize) -> Option<usize> {
    let rest = &buffer[at..];
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let number = || std::str::from_utf8(&rest[1..line]).ok()?.parse::<i64>().ok();
    let after = at + line + 2;
    let many = |count: i64| (0..count).try_fold(after, |at, _| frame_end(buffer, at));
    match rest[0] {
        // A string, a long error or a verbatim string has a number of bytes. A length of -1 is nil.
        b'$' | b'!' | b'=' => match number().expect("a length") {
            n if n < 0 => Some(after),
            n => Some(after + n as usize + 2).filter(|end| *end <= buffer.len()),
        },
        // An array, a set or a push message has a number of values, and a map a number of pairs.
        b'*' | b'~' | b'>' => many(number().expect("a count")),
        b'%' => many(number().expect("a count") * 2),
        // Attributes are pairs, followed by the value that they belong to.
        b'|' => many(number().expect("a count") * 2 + 1),
        _ => Some(after),
    }
}

pub fn parse(frame: &[u8]) -> Value {
    redis::parse_redis_value(frame).unwrap_or_else(|e| panic!("{e} in {:?}", String::from_utf8_lossy(frame)))
}

/// Returns the error as the server sent it.
pub fn error_text(error: &redis::ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

#[track_caller]
pub fn int_of(value: &Value) -> i64 {
    match value {
        Value::Int(n) => *n,
        Value::BulkString(_) | Value::SimpleString(_) => text_of(value).parse().expect("an integer"),
        _ => panic!("an integer, not {value:?}"),
    }
}

#[track_caller]
pub fn bytes_of(value: &Value) -> Vec<u8> {
    match value {
        Value::BulkString(bytes) => bytes.clone(),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text.clone().into_bytes(),
        Value::Okay => b"OK".to_vec(),
        _ => panic!("a string, not {value:?}"),
    }
}

#[track_caller]
pub fn text_of(value: &Value) -> String {
    String::from_utf8(bytes_of(value)).expect("readable text")
}

/// Returns the values of an array, a set or a push message, or the keys and values of a map in turn.
#[track_caller]
pub fn list_of(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(items) | Value::Set(items) => items.clone(),
        Value::Map(pairs) => pairs.iter().flat_map(|(k, v)| [k.clone(), v.clone()]).collect(),
        Value::Push { data, .. } => data.clone(),
        _ => panic!("a list, not {value:?}"),
    }
}

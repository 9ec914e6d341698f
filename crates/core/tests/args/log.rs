//! The subcommands of `LOG`.

use dlock_core::args::{Log, Malformed, Subcommand};

use super::words;

#[test]
fn a_subcommand_is_found_by_its_name_in_any_case() {
    for (name, subcommand) in
        [("GET", Subcommand::Get), ("len", Subcommand::Len), ("Reset", Subcommand::Reset), ("HELP", Subcommand::Help)]
    {
        assert_eq!(Subcommand::of(name.as_bytes()), Some(subcommand));
        assert_eq!(subcommand.name(), name.to_uppercase());
    }
    for name in ["", "GE", "GETS"] {
        assert_eq!(Subcommand::of(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn only_get_takes_a_number() {
    for (line, said) in [
        ("", Ok(Log::Get(10))),
        ("0", Ok(Log::Get(0))),
        ("1", Ok(Log::Get(1))),
        ("5", Ok(Log::Get(5))),
        ("-1", Ok(Log::Get(usize::MAX))),
        ("-2", Err(Malformed::LogCount)),
        ("x", Err(Malformed::Integer("count"))),
        ("5 5", Err(Malformed::Arity)),
        ("x 5", Err(Malformed::Arity)),
    ] {
        assert_eq!(Log::parse(Subcommand::Get, words(line)), said, "{line}");
    }
    for (subcommand, said) in
        [(Subcommand::Len, Log::Len), (Subcommand::Reset, Log::Reset), (Subcommand::Help, Log::Help)]
    {
        assert_eq!(Log::parse(subcommand, words("")), Ok(said));
        assert_eq!(Log::parse(subcommand, words("5")), Err(Malformed::Arity));
    }
}

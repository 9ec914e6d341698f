//! `COMMAND DOCS` and key specs of commands.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use redis_module::raw::{
    self, RedisModuleCommandArgType as Kind, RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK as GROUP,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER as NUMBER,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY as KEY,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF as ONE_OF,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN as WORD,
    RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING as TEXT,
};

use super::strings::c_string;
use dlock_core::spec::{Argument, KeyUse, Keys, Spec};

/// # Safety
/// `command` must be a live command of this module.
pub(super) unsafe fn document(command: *mut raw::RedisModuleCommand, spec: &Spec) -> c_int {
    let mut texts = Texts::default();
    // SAFETY: these are plain C structs, for which all zero means "not given".
    let (mut info, mut key_specs) = unsafe {
        let info: raw::RedisModuleCommandInfo = std::mem::zeroed();
        let key_specs: [raw::RedisModuleCommandKeySpec; 2] = std::mem::zeroed();
        (info, key_specs)
    };
    let [key_spec, _] = &mut key_specs;
    if let Keys::First(key_use) | Keys::Numbered(key_use) = spec.keys {
        key_spec.flags = u64::from(flags_of(key_use));
        key_spec.begin_search_type = raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX;
        key_spec.bs.index.pos = 1;
    }
    let (none, multiple) = (raw::REDISMODULE_CMD_ARG_NONE, raw::REDISMODULE_CMD_ARG_MULTIPLE);
    let mut arguments = Vec::new();
    match spec.keys {
        Keys::None => {}
        Keys::First(_) => {
            key_spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE;
            key_spec.fk.range =
                raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 { lastkey: 0, keystep: 1, limit: 0 };
            arguments.push(texts.argument("key", KEY, None, none));
        }
        Keys::Numbered(_) => {
            key_spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            key_spec.fk.keynum =
                raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 { keynumidx: 0, firstkey: 1, keystep: 1 };
            arguments.push(texts.argument("numkeys", NUMBER, None, none));
            arguments.push(texts.argument("key", KEY, None, multiple));
        }
    }
    arguments.extend(spec.arguments.iter().map(|argument| texts.document(argument)));
    arguments.push(end_of_arguments());

    info.version = &raw const INFO_VERSION;
    info.summary = texts.keep(spec.summary);
    info.complexity = texts.keep(spec.complexity);
    info.since = texts.keep(env!("CARGO_PKG_VERSION"));
    info.arity = spec.arity;
    info.key_specs = if spec.keys == Keys::None { null_mut() } else { key_specs.as_mut_ptr() };
    info.args = arguments.as_mut_ptr();
    // SAFETY: all pointers are live during the call, lists end with an empty element; the server copies everything.
    unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) }
}

/// Returns the server's flags for this use of keys.
pub(super) fn flags_of(key_use: KeyUse) -> u32 {
    match key_use {
        KeyUse::Read => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Update => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Remove => {
            raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_ACCESS | raw::REDISMODULE_CMD_KEY_DELETE
        }
    }
}

static INFO_VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Keeps the C strings and the lists of a command's docs alive while the server copies them.
#[derive(Default)]
struct Texts {
    strings: Vec<CString>,
    lists: Vec<Vec<raw::RedisModuleCommandArg>>,
}

impl Texts {
    fn keep(&mut self, text: &str) -> *const c_char {
        let text = c_string(text);
        let start = text.as_ptr();
        self.strings.push(text);
        start
    }

    fn document(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        let (none, optional) = (raw::REDISMODULE_CMD_ARG_NONE, raw::REDISMODULE_CMD_ARG_OPTIONAL);
        match argument {
            Argument::Text(name) => self.argument(name, TEXT, None, none),
            Argument::BareNumber(name) => self.argument(name, NUMBER, None, none),
            Argument::Word(word) => self.argument(&word.to_lowercase(), WORD, Some(word), optional),
            Argument::Number(word, name) => self.argument(name, NUMBER, Some(word), optional),
            Argument::NamedText(word, name) => self.argument(name, TEXT, Some(word), optional),
            Argument::MayBeNumber(name) => self.argument(name, NUMBER, None, optional),
            Argument::OneOf(name, choices) => self.list(name, ONE_OF, choices, optional),
            Argument::Choice(name, choices) => self.list(name, ONE_OF, choices, none),
            Argument::Group(name, parts) => self.list(name, GROUP, parts, optional),
            Argument::Required(part) => raw::RedisModuleCommandArg { flags: none.cast_signed(), ..self.document(part) },
        }
    }

    fn list(&mut self, name: &str, kind: Kind, parts: &[Argument], flags: u32) -> raw::RedisModuleCommandArg {
        let mut parts: Vec<_> = parts.iter().map(|part| self.document(part)).collect();
        // No part of a choice is optional: the choice itself may be. In a group, only the first part is never optional.
        let required = if kind == GROUP { 1 } else { parts.len() };
        for part in parts.iter_mut().take(required) {
            part.flags = raw::REDISMODULE_CMD_ARG_NONE.cast_signed();
        }
        parts.push(end_of_arguments());
        let list = raw::RedisModuleCommandArg { subargs: parts.as_mut_ptr(), ..self.argument(name, kind, None, flags) };
        self.lists.push(parts);
        list
    }

    fn argument(&mut self, name: &str, kind: Kind, word: Option<&str>, flags: u32) -> raw::RedisModuleCommandArg {
        raw::RedisModuleCommandArg {
            name: self.keep(name),
            type_: kind,
            key_spec_index: if kind == KEY { 0 } else { -1 },
            token: word.map_or(null(), |word| self.keep(word)),
            flags: flags.cast_signed(),
            ..end_of_arguments()
        }
    }
}

fn end_of_arguments() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: null(),
        type_: TEXT,
        key_spec_index: -1,
        token: null(),
        summary: null(),
        since: null(),
        flags: 0,
        deprecated_since: null(),
        subargs: null_mut(),
        display_text: null(),
    }
}

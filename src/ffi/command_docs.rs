//! `COMMAND DOCS` and key specs of commands.

use std::ffi::{CString, c_char, c_int};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::spec::{Argument, KeyUse, Keys, Spec};
use super::strings::c_string;

/// # Safety
/// `command` must be a live command of this module.
pub(super) unsafe fn document(command: *mut raw::RedisModuleCommand, spec: &Spec) -> c_int {
    let mut texts = Texts(Vec::new());
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
            arguments.push(texts.argument("key", ArgumentKind::Key, None, none));
        }
        Keys::Numbered(_) => {
            key_spec.find_keys_type = raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM;
            key_spec.fk.keynum =
                raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 { keynumidx: 0, firstkey: 1, keystep: 1 };
            arguments.push(texts.argument("numkeys", ArgumentKind::Number, None, none));
            arguments.push(texts.argument("key", ArgumentKind::Key, None, multiple));
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
    let result = unsafe { api!(RedisModule_SetCommandInfo(command, &raw const info)) };
    for argument in arguments {
        // SAFETY: lists of sub-arguments are made by `Texts::list`, and the server has copied them.
        unsafe { free_list(argument.subargs) };
    }
    result
}

/// What a command does to its keys, as the server's flags.
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

#[derive(Clone, Copy)]
enum ArgumentKind {
    Key,
    Text,
    Number,
    Word,
    OneOf,
    Group,
}

/// Keeps the C strings of a command's docs alive while the server copies them.
struct Texts(Vec<CString>);

impl Texts {
    fn keep(&mut self, text: &str) -> *const c_char {
        let text = c_string(text);
        let start = text.as_ptr();
        self.0.push(text);
        start
    }

    fn document(&mut self, argument: &Argument) -> raw::RedisModuleCommandArg {
        let (none, optional) = (raw::REDISMODULE_CMD_ARG_NONE, raw::REDISMODULE_CMD_ARG_OPTIONAL);
        match argument {
            Argument::Text(name) => self.argument(name, ArgumentKind::Text, None, none),
            Argument::BareNumber(name) => self.argument(name, ArgumentKind::Number, None, none),
            Argument::Word(word) => self.argument(&word.to_lowercase(), ArgumentKind::Word, Some(word), optional),
            Argument::Number(word, name) => self.argument(name, ArgumentKind::Number, Some(word), optional),
            Argument::NamedText(word, name) => self.argument(name, ArgumentKind::Text, Some(word), optional),
            Argument::MayBeNumber(name) => self.argument(name, ArgumentKind::Number, None, optional),
            Argument::OneOf(name, choices) => self.list(name, ArgumentKind::OneOf, choices, optional),
            Argument::Choice(name, choices) => self.list(name, ArgumentKind::OneOf, choices, none),
            Argument::Group(name, parts) => self.list(name, ArgumentKind::Group, parts, optional),
        }
    }

    fn list(&mut self, name: &str, kind: ArgumentKind, parts: &[Argument], flags: u32) -> raw::RedisModuleCommandArg {
        let mut parts: Vec<_> = parts.iter().map(|part| self.document(part)).collect();
        for part in &mut parts {
            // Inside a choice the choice is optional, not each part; in a group the words after the first are.
            if !matches!(kind, ArgumentKind::Group) {
                part.flags = raw::REDISMODULE_CMD_ARG_NONE.cast_signed();
            }
        }
        if let (ArgumentKind::Group, Some(first)) = (kind, parts.first_mut()) {
            first.flags = raw::REDISMODULE_CMD_ARG_NONE.cast_signed();
        }
        parts.push(end_of_arguments());
        let mut list = self.argument(name, kind, None, flags);
        list.subargs = Box::into_raw(parts.into_boxed_slice()).cast();
        list
    }

    fn argument(
        &mut self,
        name: &str,
        kind: ArgumentKind,
        word: Option<&str>,
        flags: u32,
    ) -> raw::RedisModuleCommandArg {
        let (kind, key_spec) = match kind {
            ArgumentKind::Key => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY, 0),
            ArgumentKind::Text => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING, -1),
            ArgumentKind::Number => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER, -1),
            ArgumentKind::Word => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN, -1),
            ArgumentKind::OneOf => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF, -1),
            ArgumentKind::Group => (raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK, -1),
        };
        raw::RedisModuleCommandArg {
            name: self.keep(name),
            type_: kind,
            key_spec_index: key_spec,
            token: word.map_or(null(), |word| self.keep(word)),
            flags: flags.cast_signed(),
            ..end_of_arguments()
        }
    }
}

fn end_of_arguments() -> raw::RedisModuleCommandArg {
    raw::RedisModuleCommandArg {
        name: null(),
        type_: raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
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

/// # Safety
/// `list` must be null or made by `Texts::list`, and not used again.
unsafe fn free_list(list: *mut raw::RedisModuleCommandArg) {
    if list.is_null() {
        return;
    }
    // SAFETY: by the caller's promise the list is a boxed slice that ends with a nameless element.
    unsafe {
        let mut len = 1;
        while !(*list.add(len - 1)).name.is_null() {
            free_list((*list.add(len - 1)).subargs);
            len += 1;
        }
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len)));
    }
}

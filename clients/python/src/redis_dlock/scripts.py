"""The attributes with which programs replace the Lua scripts of redis-py's lock."""

from __future__ import annotations

import re
from typing import Any

from redis.exceptions import LockError

# Matches a script that sets the time left of the key to its second argument, and adds nothing to that.
_SETS_THE_TTL = re.compile(r"""(['"])pexpire\1\s*,\s*KEYS\[1\]\s*,\s*ARGV\[2\]\s*\)""", re.IGNORECASE)


class Scripts:
    """The attributes of redis-py's lock that have its scripts. `DLock` runs none, so that reading one gives None."""

    # Whether a program has replaced the script of `extend` with one that sets the time left.
    _replaces_ttl = False

    def _error(self, message: str) -> LockError:
        """Returns an error that names the lock."""
        raise NotImplementedError

    @property
    def lua_extend(self) -> Any:
        """redis-py's script of `extend`. If a program replaces the script with one that sets the time left instead of
        adding to it, as RedBeat does, `extend` does the same. Any other script raises `LockError`."""
        return None

    @lua_extend.setter
    def lua_extend(self, script: Any) -> None:
        text = getattr(script, "script", script)
        if not _SETS_THE_TTL.search(text.decode() if isinstance(text, bytes) else str(text)):
            raise self._no_script("lua_extend")
        self._replaces_ttl = True

    @property
    def lua_reacquire(self) -> Any:
        """redis-py's script of `reacquire`. Setting it raises `LockError`."""
        return None

    @lua_reacquire.setter
    def lua_reacquire(self, script: Any) -> None:
        raise self._no_script("lua_reacquire")

    @property
    def lua_release(self) -> Any:
        """redis-py's script of `release`. Setting it raises `LockError`."""
        return None

    @lua_release.setter
    def lua_release(self, script: Any) -> None:
        raise self._no_script("lua_release")

    def _no_script(self, name: str) -> LockError:
        return self._error(f"{name} cannot be replaced: the lock is not a string, and DLock runs no script on it")

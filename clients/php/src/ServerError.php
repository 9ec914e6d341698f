<?php

declare(strict_types=1);

namespace Dlock;

/** The server has refused a command, or the client cannot send one now. The command was not executed. */
final class ServerError extends \RuntimeException
{
    public static function from(string $message): self
    {
        $isMissing = 1 === preg_match('/^ERR unknown command\b/i', $message);

        return new self($message.($isMissing ? ' (is the dlock module loaded on this server?)' : ''));
    }
}

package dlock;

import java.util.List;

/**
 * Says that a command was not answered, and perhaps not sent. It may be sent again. Does not leave the package.
 */
final class Unanswered extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unanswered(String message, Throwable cause) {
        super(message, cause);
    }

    /**
     * Returns whether the server refuses all writes at present, and so every renewal. The hold is still there until its
     * lease ends.
     */
    static boolean writesNothing(Throwable failure) {
        return failure instanceof ServerException
                && List.of("NOREPLICAS", "MISCONF", "BUSY").contains(((ServerException) failure).code());
    }

    /**
     * Returns whether the command may have been executed: it was not answered, its wait was ended ({@code UNBLOCKED}),
     * or an agent ({@code dlock agent}) got answers of too few servers. The agent's error has the code {@code LOADING},
     * but not the text of a server that loads its data.
     */
    static boolean mayBeExecuted(Throwable failure) {
        if (!(failure instanceof ServerException)) {
            return failure instanceof Unanswered;
        }
        String code = ((ServerException) failure).code();
        return code.equals("UNBLOCKED")
                || code.equals("LOADING") && !failure.getMessage().matches("LOADING \\S+ is loading .*");
    }

    /**
     * Returns whether the command may be sent again: it has no answer, or was refused only now or only by this server.
     */
    static boolean mayRepeat(Throwable failure) {
        return failure instanceof ServerException
                ? ((ServerException) failure).isForNow()
                : failure instanceof Unanswered;
    }
}
